//! Every malformed request and its answer. For answers that differ between releases of memcached, `docs/guide/compatibility.md`
//! names the release followed; `check/blackbox` compares the answers with memcached itself.

use flowstone_protocol::Refusal::*;
use flowstone_protocol::{BinaryRequest, Limits, Parsed, Refusal, Refused, parse};

const LIMITS: Limits = Limits {
    max_value_bytes: 1000,
    max_line_bytes: 2048,
    max_multiget_bytes: 8192,
};

/// Parses `request` with more bytes behind it, and returns the fields of the refusal.
fn refused(request: &str) -> (Refusal, usize, bool) {
    let input = [request.as_bytes(), b"version\r\n"].concat();
    match parse(&input, &LIMITS) {
        Parsed::Refused(Refused {
            reply,
            consumed,
            swallow,
            quiet,
            close: false,
            ..
        }) => {
            let line = request.find('\n').expect("a whole line") + 1;
            if reply != BadDataChunk {
                assert_eq!(consumed, line, "{request:?}");
            }
            (reply, swallow, quiet)
        }
        other => panic!("{request:?} was not refused: {other:?}"),
    }
}

fn check(table: &[(&str, Refusal, usize, bool)]) {
    let long = "k".repeat(251);
    for &(request, reply, swallow, quiet) in table {
        let request = request.replace("LONG", &long);
        assert_eq!(refused(&request), (reply, swallow, quiet), "{request:?}");
    }
}

#[test]
fn unknown_commands() {
    for name in [
        "   ",
        "mm",
        "mgg",
        "MG a",
        "GET a",
        "geta a",
        "gett a",
        "sets a 0 0 1",
        "foo",
        "extstore free 1",
        "misbehave",
        "debugtime p",
        "quit\t",
        "version\tx",
    ] {
        check(&[
            (&format!("{name}\r\n"), UnknownCommand, 0, false),
            (&format!("{name} \n"), UnknownCommand, 0, false),
        ]);
    }
}

#[test]
fn a_line_shorter_than_any_command_is_malformed() {
    for line in ["\n", "\r\n", "\r\r\n", " \r\n", "a\r\n", "m\n", "\0\r\n"] {
        check(&[(line, BadFormat, 0, false)]);
    }
}

#[test]
fn retrieval() {
    check(&[
        ("get\r\n", BadFormat, 0, false),
        ("get \r\n", BadFormat, 0, false),
        ("get    \r\n", BadFormat, 0, false),
        ("gets\r\n", BadFormat, 0, false),
        ("gat\r\n", BadFormat, 0, false),
        ("get LONG\r\n", BadFormat, 0, false),
        ("get a LONG b\r\n", BadFormat, 0, false),
        ("gets a LONG\r\n", BadFormat, 0, false),
        ("get a\0b\r\n", BadFormat, 0, false),
        ("get a b\0 c\r\n", BadFormat, 0, false),
        ("gat 0\r\n", BadFormat, 0, false),
        ("gat 2147483648 a\r\n", InvalidExptime, 0, false),
        ("gat x a\r\n", InvalidExptime, 0, false),
        ("gat 1x a\r\n", InvalidExptime, 0, false),
        ("gats 0 LONG\r\n", BadFormat, 0, false),
    ]);
}

#[test]
fn storage() {
    check(&[
        ("set\r\n", BadFormat, 0, false),
        ("set a\r\n", BadFormat, 0, false),
        ("set a 0 0\r\n", BadFormat, 0, false),
        ("set a 0 noreply\r\n", BadFormat, 0, false),
        ("cas a 0 0 1\r\n", BadFormat, 3, false),
        ("set a 0 0 -1\r\n", BadFormat, 0, false),
        ("set a 0 0 x\r\n", BadFormat, 0, false),
        ("set a 0 0 noreply\r\n", BadFormat, 0, true),
        ("set a 0 0 2147483646\r\n", BadFormat, 0, false),
        ("set a 0 0 4294967297\r\n", BadFormat, 0, false),
        ("set a x 0 5\r\n", BadFormat, 7, false),
        ("set a -1 0 5\r\n", BadFormat, 7, false),
        ("set a 4294967296 0 5\r\n", BadFormat, 7, false),
        ("set a 0 x 5\r\n", BadFormat, 7, false),
        ("set a 0 x 5 noreply\r\n", BadFormat, 7, true),
        ("set LONG 0 0 5\r\n", BadFormat, 7, false),
        ("set LONG 0 0 5 noreply\r\n", BadFormat, 7, true),
        ("set a\0b 0 0 5\r\n", BadFormat, 7, false),
        ("set a\x000 0 5\r\n", BadFormat, 0, false),
        ("set a 18446744073709551617 0 5\r\n", BadFormat, 7, false),
        ("cas a 0 0 5 x\r\n", BadFormat, 7, false),
        ("cas a 0 0 5 -1\r\n", BadFormat, 7, false),
        ("cas a 0 0 5 noreply\r\n", BadFormat, 7, true),
        ("cas a 0 0 5 x noreply\r\n", BadFormat, 7, true),
        ("set a 0 0 1001\r\n", TooLarge, 1003, false),
        ("set a 0 0 2147483645\r\n", TooLarge, 2147483647, false),
        ("add a 0 0 1001 noreply\r\n", TooLarge, 1003, true),
        ("set a 0 0 3\r\nabcdef\r\n", BadDataChunk, 0, false),
        ("set a 0 0 3\r\nabc\n\r\n", BadDataChunk, 0, false),
        ("set a 0 0 3 noreply\r\nab\r\n\r\n", BadDataChunk, 0, true),
        ("append a 0 0 0\r\nab", BadDataChunk, 0, false),
    ]);
}

#[test]
fn a_bad_block_takes_its_announced_length_with_it() {
    let input = b"set a 0 0 3\r\nabcdef\r\n";
    let Parsed::Refused(Refused { consumed, .. }) = parse(input, &LIMITS) else {
        panic!("accepted");
    };
    assert_eq!(&input[consumed..], b"f\r\n");
}

#[test]
fn one_key_commands() {
    check(&[
        ("delete\r\n", BadFormat, 0, false),
        ("delete a b c d\r\n", UnknownCommand, 0, false),
        ("delete a 1\r\n", BadDelete, 0, false),
        ("delete a 1 noreply\r\n", BadDelete, 0, true),
        ("delete a 0 0\r\n", BadDelete, 0, false),
        ("delete a noreply 0\r\n", BadDelete, 0, false),
        ("delete LONG\r\n", BadFormat, 0, false),
        ("delete LONG noreply\r\n", BadFormat, 0, true),
        ("incr a\r\n", BadFormat, 0, false),
        ("incr a x\r\n", InvalidDelta, 0, false),
        ("decr a -1\r\n", InvalidDelta, 0, false),
        ("incr a noreply\r\n", InvalidDelta, 0, true),
        ("incr a 18446744073709551616\r\n", InvalidDelta, 0, false),
        ("incr LONG x\r\n", BadFormat, 0, false),
        ("touch a\r\n", BadFormat, 0, false),
        ("touch a x\r\n", InvalidExptime, 0, false),
        ("touch a x noreply\r\n", InvalidExptime, 0, true),
        ("touch LONG x\r\n", BadFormat, 0, false),
    ]);
}

#[test]
fn administration() {
    check(&[
        ("flush_all x\r\n", InvalidExptime, 0, false),
        ("flush_all noreply noreply\r\n", InvalidExptime, 0, true),
        ("verbosity\r\n", BadFormat, 0, false),
        ("verbosity x\r\n", BadFormat, 0, false),
        ("verbosity noreply\r\n", BadFormat, 0, true),
        ("watch\r\n", WatchNotAllowed, 0, false),
        ("cache_memlimit\r\n", UnknownCommand, 0, false),
        ("cache_memlimit x\r\n", UnknownCommand, 0, false),
        ("cache_memlimit 7\r\n", MemlimitTooSmall, 0, false),
        (
            "cache_memlimit 1000000001\r\n",
            MemlimitNotMegabytes,
            0,
            false,
        ),
        ("slabs\r\n", UnknownCommand, 0, false),
        ("slabs reassign 1\r\n", UnknownCommand, 0, false),
        ("slabs reassign 1 2\r\n", ReassignDisabled, 0, false),
        ("slabs automove\r\n", UnknownCommand, 0, false),
        ("slabs automove 3\r\n", UnknownCommand, 0, false),
        ("slabs automove x\r\n", BadFormat, 0, false),
        ("slabs automove ratio\r\n", UnknownCommand, 0, false),
        ("slabs automove ratio x\r\n", UnknownCommand, 0, false),
        ("lru\r\n", UnknownCommand, 0, false),
        ("lru x y\r\n", UnknownCommand, 0, false),
        ("lru mode x\r\n", UnknownCommand, 0, false),
        ("lru temp_ttl x\r\n", UnknownCommand, 0, false),
        ("lru tune 10 20 0.1\r\n", UnknownCommand, 0, false),
        ("lru tune 50 40 0.1 2\r\n", TuneShares, 0, false),
        ("lru tune 10 20 0 2\r\n", TuneFactors, 0, false),
        ("lru_crawler\r\n", UnknownCommand, 0, false),
        ("lru_crawler enable x\r\n", UnknownCommand, 0, false),
        ("lru_crawler metadump\r\n", UnknownCommand, 0, false),
        ("lru_crawler foo bar\r\n", UnknownCommand, 0, false),
        ("lru_crawler metadump 0\r\n", BadClass, 0, false),
        ("lru_crawler metadump 64\r\n", BadClass, 0, false),
        ("lru_crawler metadump 1,x\r\n", BadClass, 0, false),
        ("lru_crawler crawl hash\r\n", CrawlerUnknown, 0, false),
        ("lru_crawler crawl x\r\n", BadClass, 0, false),
        ("lru_crawler sleep x\r\n", BadFormat, 0, false),
        ("lru_crawler sleep 1000001\r\n", CrawlerSleep, 0, false),
        ("lru_crawler tocrawl x\r\n", BadFormat, 0, false),
    ]);
}

#[test]
fn meta() {
    let opaque = format!("O{}", "x".repeat(32));
    let eighteen = "c f h k l s t v u q P L O I F1 C1 D1 J1";
    let table = [
        ("mg\r\n", BadFormat, 0),
        ("md\r\n", BadFormat, 0),
        ("ma\r\n", BadFormat, 0),
        ("ms\r\n", BadFormat, 0),
        ("me\r\n", BadFormat, 0),
        ("ms a\r\n", BadFormat, 0),
        ("ms a x\r\n", BadFormat, 0),
        ("ms a S2\r\n", BadFormat, 0),
        ("ms a -1\r\n", BadFormat, 0),
        ("mg LONG\r\n", BadFormat, 0),
        ("md LONG\r\n", BadFormat, 0),
        ("ma LONG\r\n", InvalidOrDuplicateFlag, 0),
        ("ma LONG !\r\n", BadFormat, 0),
        ("ma a\0b\r\n", BadFormat, 0),
        ("me LONG\r\n", BadFormat, 0),
        ("ms LONG 2\r\n", BadFormat, 4),
        ("mg a\0b\r\n", BadFormat, 0),
        ("mg a s s\r\n", DuplicateFlag, 0),
        ("mg a \x7f\r\n", BadFormat, 0),
        ("mg a v v !\r\n", BadFormat, 0),
        ("mg a [\r\n", InvalidFlag, 0),
        ("mg a 5\r\n", InvalidFlag, 0),
        ("mg a S\r\n", InvalidFlag, 0),
        ("mg a z Tx\r\n", InvalidFlag, 0),
        ("mg a Tx z\r\n", InvalidFlag, 0),
        ("mg a T\r\n", BadToken, 0),
        ("mg a N1x\r\n", BadToken, 0),
        ("mg a R\r\n", BadToken, 0),
        ("mg a Cx\r\n", BadToken, 0),
        ("mg a E-1\r\n", BadToken, 0),
        ("mg a F\r\n", BadFormat, 0),
        ("mg a F4294967296\r\n", BadFormat, 0),
        ("mg a Tx F\r\n", BadToken, 0),
        ("mg a Tx Dx\r\n", DeltaValue, 0),
        ("mg a Jx\r\n", InitialValue, 0),
        ("mg a MAA\r\n", ModeLength, 0),
        ("mg Y b\r\n", KeyEncoding, 0),
        ("mg Y b Tx\r\n", BadToken, 0),
        ("mg Y Tx b\r\n", KeyEncoding, 0),
        ("mg a OPAQUE\r\n", OpaqueTooLong, 0),
        ("mg a EIGHTEEN\r\n", TooManyGetFlags, 0),
        ("md a EIGHTEEN\r\n", TooManyFlags, 0),
        ("ma a EIGHTEEN\r\n", TooManyFlags, 0),
        ("ms a 2 EIGHTEEN\r\n", TooManyFlags, 4),
        ("md a s s\r\n", DuplicateFlag, 0),
        ("md a z\r\n", InvalidFlag, 0),
        ("md a !\r\n", BadFormat, 0),
        ("md a Tx\r\n", BadToken, 0),
        ("md Y b\r\n", KeyEncoding, 0),
        ("md a OPAQUE\r\n", OpaqueTooLong, 0),
        ("ma a Dx\r\n", InvalidOrDuplicateFlag, 0),
        ("ma a s s\r\n", InvalidOrDuplicateFlag, 0),
        ("ma a 5\r\n", InvalidOrDuplicateFlag, 0),
        ("ma Y b\r\n", InvalidOrDuplicateFlag, 0),
        ("ma a !\r\n", BadFormat, 0),
        ("ma a Dx !\r\n", BadFormat, 0),
        ("ma a MINCR\r\n", InvalidOrDuplicateFlag, 0),
        ("ma a M\r\n", ArithmeticMode, 0),
        ("ma a Mi\r\n", ArithmeticMode, 0),
        ("ma a Mi OPAQUE\r\n", ArithmeticMode, 0),
        ("ma a OPAQUE\r\n", OpaqueTooLong, 0),
        ("me Y b\r\n", BadFormat, 0),
        ("ms a 2 Mx\r\n", SetMode, 4),
        ("ms a 2 Me\r\n", SetMode, 4),
        ("ms a 2 OPAQUE Mx\r\n", SetMode, 4),
        ("ms a 2 M\r\n", SetMode, 4),
        ("ms a 2 MSET\r\n", ModeLength, 4),
        ("ms a 2 !\r\n", BadFormat, 4),
        ("ms a 2 Tx F1\r\n", BadToken, 4),
        ("ms a 2 Fx\r\n", BadFormat, 4),
        ("ms a 2 b\r\n", KeyEncoding, 4),
        ("ms a 2 z\r\n", InvalidFlag, 4),
        ("ms a 2 OPAQUE\r\n", OpaqueTooLong, 4),
        ("ms a 1001 q\r\n", TooLarge, 1003),
        ("ms a 2 q\r\nhixx", BadDataChunk, 0),
    ];
    for (request, reply, swallow) in table {
        let request = request
            .replace("OPAQUE", &opaque)
            .replace("EIGHTEEN", eighteen);
        check(&[(&request, reply, swallow, false)]);
    }
}

#[test]
fn only_a_set_that_is_too_large_invalidates() {
    for (line, invalidated) in [
        ("set a 0 0 1001\r\n", Some(&b"a"[..])),
        ("add a 0 0 1001\r\n", None),
        ("cas a 0 0 1001 5\r\n", None),
        ("append a 0 0 1001\r\n", None),
        ("ms YQ== 1001 b\r\n", Some(b"a")),
        ("ms a 1001 ME\r\n", Some(b"a")),
        ("set a x 0 5\r\n", None),
    ] {
        let Parsed::Refused(Refused { invalidates, .. }) = parse(line.as_bytes(), &LIMITS) else {
            panic!("{line:?} was accepted");
        };
        let mut buffer = [0; 250];
        let key = invalidates.as_ref().map(|key| key.decode(&mut buffer));
        assert_eq!(key, invalidated, "{line:?}");
    }
}

#[test]
fn lines_are_bounded() {
    let verdict = |input: &str| match parse(input.as_bytes(), &LIMITS) {
        Parsed::Refused(Refused {
            reply: LineTooLong,
            close: true,
            ..
        }) => "too long",
        Parsed::Incomplete { need: None } => "incomplete",
        Parsed::Command { .. } => "command",
        Parsed::Refused(_) => "refused",
        other => panic!("{other:?}"),
    };
    let filled = |start: &str, bytes: usize| format!("{start}{}", "k ".repeat(bytes / 2));
    assert_eq!(verdict(&"x".repeat(2047)), "incomplete");
    assert_eq!(verdict(&"x".repeat(2048)), "too long");
    assert_eq!(verdict(&format!("{}\n", "x".repeat(2047))), "refused");
    assert_eq!(verdict(&format!("{}\n", "x".repeat(2048))), "too long");
    for name in ["get ", "gets ", "gat 0 ", "gats 0 ", "  get "] {
        assert_eq!(verdict(&filled(name, 8000)), "incomplete", "{name}");
        assert_eq!(verdict(&(filled(name, 8000) + "\r\n")), "command", "{name}");
        assert_eq!(verdict(&filled(name, 8192)), "too long", "{name}");
        assert_eq!(
            verdict(&(filled(name, 8192) + "\r\n")),
            "too long",
            "{name}"
        );
    }
    assert_eq!(verdict(&filled("mg ", 3000)), "too long");
    assert_eq!(
        verdict(&filled(&(" ".repeat(101) + "get "), 3000)),
        "too long"
    );
}

#[test]
fn what_is_not_memcached_at_all() {
    let mut binary = [0; 24];
    binary[0] = 0x80;
    binary[1] = 10;
    binary[12..16].copy_from_slice(b"mine");
    let opaque = *b"mine";
    let expected = Parsed::Binary(BinaryRequest { opcode: 10, opaque });
    assert_eq!(parse(&binary, &LIMITS), expected);
    let incomplete = Parsed::Incomplete { need: None };
    assert_eq!(parse(&binary[..23], &LIMITS), incomplete);
    let input = b"GET /index.html HTTP/1.1\r\nHost: localhost\r\n\r\n";
    match parse(input, &LIMITS) {
        Parsed::Refused(Refused { reply, close, .. }) => {
            assert_eq!(reply.as_bytes(), b"");
            assert!(close);
        }
        other => panic!("{other:?}"),
    }
}
