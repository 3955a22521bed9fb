//! Well-formed requests, one of every form, and the commands parsed from them.

use flowstone_protocol::{
    Command, Exptime, Limits, MetaCommand, MetaFlag, Parsed, StoreVerb, parse,
};

fn command(request: &str) -> Command<'_> {
    match parse(request.as_bytes(), &Limits::default()) {
        Parsed::Command { command, consumed } => {
            assert_eq!(consumed, request.len(), "{request:?}");
            command
        }
        other => panic!("{request:?}: {other:?}"),
    }
}

fn keys(request: &str) -> Vec<&str> {
    let (Command::Get { keys, .. } | Command::GetAndTouch { keys, .. }) = command(request) else {
        panic!("{request:?} retrieves nothing");
    };
    assert_eq!(keys.len(), keys.count(), "{request:?}");
    keys.map(|key| str::from_utf8(key).expect("these keys are text"))
        .collect()
}

#[test]
fn retrieval() {
    assert_eq!(keys("get user:1\r\n"), ["user:1"]);
    assert_eq!(keys("get user:1\n"), ["user:1"]);
    assert_eq!(keys("  get  user:1   user:2 \r\n"), ["user:1", "user:2"]);
    assert_eq!(keys("bget user:1 user:2\r\n"), ["user:1", "user:2"]);
    assert_eq!(
        keys("get /index.html HTTP/1.1\r\n"),
        ["/index.html", "HTTP/1.1"]
    );
    assert_eq!(keys("get a\tb c\rd\r\n"), ["a\tb", "c\rd"]);
    assert_eq!(
        keys(&format!("get {}\r\n", "k".repeat(250))),
        ["k".repeat(250)]
    );
    for (request, cas) in [
        ("get a\r\n", false),
        ("gets a\r\n", true),
        (" gets a\r\n", true),
    ] {
        assert!(matches!(command(request), Command::Get { with_cas, .. } if with_cas == cas));
    }
    for (request, cas, time) in [("gat 5 a\r\n", false, 5), ("gats -1 a b\r\n", true, -1)] {
        assert!(matches!(
            command(request),
            Command::GetAndTouch { with_cas, exptime: Exptime(sent), .. }
                if with_cas == cas && sent == time
        ));
    }
}

#[test]
fn storage() {
    for (request, verb, cas_unique, noreply) in [
        ("set user:1 7 60 3\r\nada\r\n", StoreVerb::Set, 0, false),
        ("set  user:1  7 60 3 \nada\r\n", StoreVerb::Set, 0, false),
        (" set user:1 7 60 3\r\nada\r\n", StoreVerb::Set, 0, false),
        (
            "set user:1 7 60 3 junk\r\nada\r\n",
            StoreVerb::Set,
            0,
            false,
        ),
        (
            "set user:1 +7 +60 +3 noreply\r\nada\r\n",
            StoreVerb::Set,
            0,
            true,
        ),
        ("add user:1 7 60 3\r\nada\r\n", StoreVerb::Add, 0, false),
        (
            "replace user:1 7 60 3 noreply\r\nada\r\n",
            StoreVerb::Replace,
            0,
            true,
        ),
        (
            "append user:1 7 60 3\r\nada\r\n",
            StoreVerb::Append,
            0,
            false,
        ),
        (
            "prepend user:1 7 60 3\r\nada\r\n",
            StoreVerb::Prepend,
            0,
            false,
        ),
        (
            "cas user:1 7 60 3 18446744073709551615\r\nada\r\n",
            StoreVerb::Cas,
            u64::MAX,
            false,
        ),
        (
            "cas user:1 7 60 3 9 noreply\r\nada\r\n",
            StoreVerb::Cas,
            9,
            true,
        ),
    ] {
        let expected = Command::Store {
            verb,
            key: b"user:1",
            client_flags: 7,
            exptime: Exptime(60),
            cas_unique,
            value: b"ada",
            noreply,
        };
        assert_eq!(command(request), expected, "{request:?}");
    }
}

#[test]
fn a_store_says_how_much_is_missing() {
    let request = "set user:1 0 0 12\r\nline\r\nbreaks\r\n";
    let limits = Limits::default();
    for end in 0..request.len() {
        let need = (end >= 19).then_some(request.len());
        let parsed = parse(&request.as_bytes()[..end], &limits);
        assert_eq!(parsed, Parsed::Incomplete { need }, "{end}");
    }
    let Command::Store { value, .. } = command(request) else {
        panic!("not a store");
    };
    assert_eq!(value, b"line\r\nbreaks");
}

#[test]
fn one_key_commands() {
    let key = &b"user:1"[..];
    for (request, noreply) in [
        ("delete user:1\r\n", false),
        ("delete user:1 0\r\n", false),
        ("delete user:1 noreply\r\n", true),
        ("delete user:1 0 noreply\r\n", true),
    ] {
        assert_eq!(command(request), Command::Delete { key, noreply });
    }
    let Command::Delete {
        key: b"noreply",
        noreply: false,
    } = command("delete noreply\r\n")
    else {
        panic!("a key is a key");
    };
    for (request, delta, decrement, noreply) in [
        (
            "incr user:1 18446744073709551615\r\n",
            u64::MAX,
            false,
            false,
        ),
        ("decr user:1 5 noreply\r\n", 5, true, true),
        ("incr user:1 5 junk\r\n", 5, false, false),
    ] {
        let expected = Command::Arithmetic {
            key,
            delta,
            decrement,
            noreply,
        };
        assert_eq!(command(request), expected);
    }
    for (request, exptime, noreply) in [
        ("touch user:1 0\r\n", Exptime(0), false),
        ("touch user:1 -1 noreply\r\n", Exptime(-1), true),
    ] {
        assert_eq!(
            command(request),
            Command::Touch {
                key,
                exptime,
                noreply
            }
        );
    }
}

#[test]
fn administration() {
    for (request, delay, noreply) in [
        ("flush_all\r\n", 0, false),
        ("flush_all noreply\r\n", 0, true),
        ("flush_all 10\r\n", 10, false),
        ("flush_all 10 noreply\r\n", 10, true),
        ("flush_all 10 20\r\n", 10, false),
        ("flush_all -10\r\n", -10, false),
    ] {
        let delay = Exptime(delay);
        assert_eq!(command(request), Command::FlushAll { delay, noreply });
    }
    for (request, noreply) in [
        ("flowstone sync\r\n", false),
        ("flowstone sync noreply\r\n", true),
    ] {
        assert_eq!(command(request), Command::Sync { noreply });
    }
    let quiet = Command::Tuning { noreply: true };
    assert_eq!(command("verbosity 9 noreply\r\n"), quiet);
    assert_eq!(command("version\r\n"), Command::Version);
    assert_eq!(command("version please\r\n"), Command::Version);
    assert_eq!(command("quit\r\n"), Command::Quit);
    for (request, is_valid) in [
        ("shutdown\r\n", true),
        ("shutdown graceful\r\n", true),
        ("shutdown now\r\n", false),
        ("shutdown graceful now\r\n", false),
    ] {
        assert_eq!(command(request), Command::Shutdown { is_valid });
    }
    for (request, argument) in [
        ("stats\r\n", None),
        ("stats settings\r\n", Some(&b"settings"[..])),
        ("stats detail dump\r\n", Some(b"detail")),
    ] {
        assert_eq!(command(request), Command::Stats { argument });
    }
    let memlimit = Command::CacheMemlimit { noreply: false };
    assert_eq!(command("cache_memlimit 64\r\n"), memlimit);
    for request in [
        "stats detail on\r\n",
        "stats detail off more\r\n",
        "lru tune 10 20 0.1 2\r\n",
        "lru mode flat\r\n",
        "lru mode segmented\r\n",
        "lru temp_ttl -1\r\n",
        "slabs automove 2\r\n",
        "slabs automove ratio 0.8\r\n",
        "lru_crawler enable\r\n",
        "lru_crawler disable\r\n",
        "lru_crawler sleep 1000000\r\n",
        "lru_crawler tocrawl 0\r\n",
        "lru_crawler crawl all\r\n",
    ] {
        assert_eq!(
            command(request),
            Command::Tuning { noreply: false },
            "{request:?}"
        );
    }
}

#[test]
fn dumps() {
    for (scope, classes) in [("all", None), ("hash", None), ("1,63", Some(&b"1,63"[..]))] {
        let request = format!("lru_crawler metadump {scope}\r\n");
        assert_eq!(command(&request), Command::Metadump { classes });
        let request = format!("lru_crawler mgdump {scope}\r\n");
        assert_eq!(command(&request), Command::Mgdump { classes });
    }
}

fn meta(request: &str) -> MetaCommand<'_> {
    match command(request) {
        Command::Meta(command) => command,
        other => panic!("{request:?}: {other:?}"),
    }
}

#[test]
fn meta_get() {
    let MetaCommand::Get(get) = meta("mg user:1 s v q u T60 N30 R10 C5 E6 Oabc P L\r\n") else {
        panic!("not mg");
    };
    assert_eq!(get.key.raw(), b"user:1");
    assert!(get.value && get.quiet && get.no_bump && !get.key.is_base64());
    assert_eq!(get.touch, Some(Exptime(60)));
    assert_eq!(get.vivify, Some(Exptime(30)));
    assert_eq!(get.recache, Some(Exptime(10)));
    assert_eq!((get.compare_cas, get.new_cas), (Some(5), Some(6)));
    let letters: Vec<u8> = get.flags.map(|flag| flag.letter).collect();
    assert_eq!(letters, b"svquTNRCEOPL");
    let opaque = MetaFlag {
        letter: b'O',
        token: b"abc",
    };
    assert!(get.flags.into_iter().any(|flag| flag == opaque));

    let MetaCommand::Get(get) = meta("mg dXNlcjox b\r\n") else {
        panic!("not mg");
    };
    assert_eq!(get.key.decode(&mut [0; 250]), b"user:1");
    assert!(!get.value && get.key.is_base64());
}

#[test]
fn meta_set_modes() {
    use StoreVerb::{Add, Append, Cas, Prepend, Replace, Set};
    for (flags, verb, compare_cas) in [
        ("", Set, None),
        (" MS", Set, None),
        (" ME", Add, None),
        (" ME C5", Add, None),
        (" MR", Replace, None),
        (" MA C5", Append, Some(5)),
        (" MP C0", Prepend, None),
        (" C5", Cas, Some(5)),
        (" C0", Cas, Some(0)),
        (" MR C5", Cas, Some(5)),
    ] {
        let request = format!("ms user:1 3{flags}\r\nada\r\n");
        let MetaCommand::Set(set) = meta(&request) else {
            panic!("not ms");
        };
        assert_eq!(
            (set.verb, set.request.compare_cas, set.value),
            (verb, compare_cas, &b"ada"[..])
        );
    }
}

#[test]
fn meta_set_flags() {
    let MetaCommand::Set(set) = meta("ms user:1 0 F9 T60 I C5 E7 N30 q\r\n\r\n") else {
        panic!("not ms");
    };
    let request = set.request;
    assert_eq!(
        (request.client_flags, request.touch, request.new_cas),
        (9, Some(Exptime(60)), Some(7))
    );
    assert!(request.invalidate && request.quiet);
    assert_eq!(request.vivify, None, "only append and prepend vivify");
    let MetaCommand::Set(set) = meta("ms user:1 0 MA N30 I\r\n\r\n") else {
        panic!("not ms");
    };
    assert_eq!(set.request.vivify, Some(Exptime(30)));
    assert!(
        !set.request.invalidate,
        "only a compare and swap invalidates"
    );
}

#[test]
fn the_other_meta_commands() {
    let MetaCommand::Delete(delete) = meta("md user:1 q I x T30 C5 E6\r\n") else {
        panic!("not md");
    };
    assert!(delete.quiet && delete.invalidate && delete.remove_value);
    assert_eq!(delete.touch, Some(Exptime(30)));
    assert_eq!((delete.compare_cas, delete.new_cas), (Some(5), Some(6)));

    let MetaCommand::Arithmetic(ma) = meta("ma user:1\r\n") else {
        panic!("not ma");
    };
    assert_eq!((ma.delta, ma.initial, ma.decrement), (1, 0, false));
    let MetaCommand::Arithmetic(ma) = meta("ma user:1 MD D7 N30 J13 T5 C0 E6 v q\r\n") else {
        panic!("not ma");
    };
    assert_eq!((ma.delta, ma.initial, ma.decrement), (7, 13, true));
    assert_eq!((ma.vivify, ma.touch), (Some(Exptime(30)), Some(Exptime(5))));
    assert_eq!((ma.compare_cas, ma.new_cas), (None, Some(6)));
    assert!(ma.value && ma.quiet);
    for (mode, decrement) in [("MI", false), ("M+", false), ("MD", true), ("M-", true)] {
        let request = format!("ma user:1 {mode}\r\n");
        let MetaCommand::Arithmetic(ma) = meta(&request) else {
            panic!("not ma");
        };
        assert_eq!(ma.decrement, decrement);
    }

    assert_eq!(meta("mn\r\n"), MetaCommand::Noop);
    assert_eq!(meta("mn x\r\n"), MetaCommand::Noop);
    let MetaCommand::Debug(key) = meta("me dXNlcjox b\r\n") else {
        panic!("not me");
    };
    assert!(key.is_base64());
}
