//! Meta replies, byte for byte as memcached gives them to the same requests.

use flowstone_protocol::write::{self, Counted, DumpedItem, ItemMeta, Outcome, Stored};
use flowstone_protocol::{Command, Limits, MetaCommand, Parsed, Status, parse};

/// Item of most requests below.
const ITEM: ItemMeta = ItemMeta {
    client_flags: 7,
    cas_unique: 18,
    value_bytes: 1,
    ttl: None,
    ttl_touched: None,
    ttl_created: None,
    created: false,
    last_access_secs: 0,
    fetched: true,
    stale: false,
    won: false,
    token_sent: false,
};

/// Returns the reply that `write` makes to the command in `request`.
fn reply(request: &str, write: impl FnOnce(&mut Vec<u8>, MetaCommand<'_>)) -> String {
    let input = format!("{request}\r\n\r\n");
    let parsed = parse(input.as_bytes(), &Limits::default());
    let Parsed::Command {
        command: Command::Meta(command),
        ..
    } = parsed
    else {
        panic!("{request:?}: {parsed:?}");
    };
    let mut out = Vec::new();
    write(&mut out, command);
    String::from_utf8(out)
        .expect("replies to text are text")
        .replace("\r\n", "|")
}

fn hit(request: &str, item: ItemMeta) -> String {
    reply(request, |out, command| match command {
        MetaCommand::Get(get) => write::meta_get_hit(out, &get, &item, b"x"),
        other => panic!("{other:?}"),
    })
}

fn miss(request: &str) -> String {
    reply(request, |out, command| match command {
        MetaCommand::Get(get) => write::meta_get_miss(out, &get),
        other => panic!("{other:?}"),
    })
}

fn set(request: &str, outcome: Outcome<Stored>) -> String {
    reply(request, |out, command| match command {
        MetaCommand::Set(set) => write::meta_set(out, &set, outcome),
        other => panic!("{other:?}"),
    })
}

fn delete(request: &str, outcome: Outcome<()>) -> String {
    reply(request, |out, command| match command {
        MetaCommand::Delete(delete) => write::meta_delete(out, &delete, outcome),
        other => panic!("{other:?}"),
    })
}

fn arithmetic(request: &str, outcome: Outcome<Counted>) -> String {
    reply(request, |out, command| match command {
        MetaCommand::Arithmetic(ma) => write::meta_arithmetic(out, &ma, outcome),
        other => panic!("{other:?}"),
    })
}

#[test]
fn hits_return_flags_in_the_order_of_the_request() {
    assert_eq!(hit("mg a", ITEM), "HD|");
    assert_eq!(hit("mg a q", ITEM), "HD|", "only misses are quiet");
    assert_eq!(
        hit("mg a s v t c f l h Oabc k u q", ITEM),
        "VA 1 s1 t-1 c18 f7 l0 h1 Oabc ka|x|"
    );
    assert_eq!(
        hit("mg a k h l f c t s", ITEM),
        "HD ka h1 l0 f7 c18 t-1 s1|"
    );
    assert_eq!(hit("mg YQ== k b v", ITEM), "VA 1 kYQ== b|x|");
    assert_eq!(
        hit("mg a C18 v c", ITEM),
        "HD c18|",
        "the client holds this version"
    );
    assert_eq!(hit("mg a C17 v c", ITEM), "VA 1 c18|x|");
}

#[test]
fn ttl_is_told_as_of_its_place_among_the_flags() {
    let touched = ItemMeta {
        ttl: Some(10),
        ttl_touched: Some(20),
        ..ITEM
    };
    assert_eq!(hit("mg a t T20", touched), "HD t10|");
    assert_eq!(hit("mg a T20 t", touched), "HD t20|");
    let created = ItemMeta {
        ttl_touched: Some(300),
        ttl_created: Some(30),
        created: true,
        won: true,
        ..ITEM
    };
    assert_eq!(hit("mg a t N30", created), "HD t-1 W|");
    assert_eq!(hit("mg a N30 t", created), "HD t30 W|");
    assert_eq!(hit("mg a N30 t T300", created), "HD t30 W|");
    assert_eq!(hit("mg a N30 T300 t", created), "HD t300 W|");
    assert_eq!(hit("mg a T300 N30 t", created), "HD t30 W|");
    assert_eq!(hit("mg a N30 t", touched), "HD t10|");
    let expired = ItemMeta {
        ttl: Some(-7),
        ..ITEM
    };
    assert_eq!(hit("mg a t", expired), "HD t0|");
}

#[test]
fn recache_flags_come_last() {
    let stale = ItemMeta {
        stale: true,
        ..ITEM
    };
    assert_eq!(
        hit("mg a v", ItemMeta { won: true, ..stale }),
        "VA 1 X W|x|"
    );
    assert_eq!(
        hit(
            "mg a v k",
            ItemMeta {
                token_sent: true,
                ..stale
            }
        ),
        "VA 1 ka Z X|x|"
    );
    assert_eq!(hit("mg a", ItemMeta { won: true, ..ITEM }), "HD W|");
    assert_eq!(
        hit(
            "mg a",
            ItemMeta {
                token_sent: true,
                ..ITEM
            }
        ),
        "HD Z|"
    );
}

#[test]
fn misses_return_what_identifies_the_request() {
    assert_eq!(miss("mg a"), "EN|");
    assert_eq!(miss("mg a s Oabc k t v"), "EN Oabc ka|");
    assert_eq!(miss("mg YWE= k b"), "EN kYWE= b|");
    assert_eq!(miss("mg a Oabc k q"), "");
}

#[test]
fn sets() {
    let stored = Outcome::Done(Stored {
        cas_unique: 19,
        value_bytes: 4,
    });
    assert_eq!(set("ms a 0", stored), "HD|");
    assert_eq!(set("ms YQ== 0 c k Oq b s", stored), "HD c19 kYQ== b Oq s4|");
    assert_eq!(set("ms a 0 q k", stored), "");
    for (outcome, code) in [
        (Outcome::NotStored, "NS"),
        (Outcome::Exists, "EX"),
        (Outcome::NotFound, "NF"),
    ] {
        assert_eq!(set("ms a 0 k c q", outcome), format!("{code} ka c0|"));
    }
}

#[test]
fn deletes() {
    assert_eq!(delete("md a Oa k", Outcome::Done(())), "HD Oa ka|");
    assert_eq!(delete("md a q", Outcome::Done(())), "");
    assert_eq!(delete("md a q Oa k", Outcome::NotFound), "NF Oa ka|");
    assert_eq!(delete("md a q k C1", Outcome::Exists), "EX ka|");
}

#[test]
fn arithmetics() {
    let outcome = |created, value, ttl, ttl_set| {
        let item = ItemMeta {
            ttl,
            ttl_touched: ttl_set,
            ttl_created: ttl_set,
            created,
            cas_unique: 24,
            ..ITEM
        };
        Outcome::Done(Counted { value, item })
    };
    let done = |value, ttl, ttl_set| outcome(false, value, ttl, ttl_set);
    assert_eq!(arithmetic("ma n", done(6, None, None)), "HD|");
    let value = arithmetic("ma n v t c k Oq", done(7, None, None));
    assert_eq!(value, "VA 1 t-1 c24 kn Oq|7|");
    assert_eq!(arithmetic("ma n q v", done(8, None, None)), "");
    let touched = arithmetic("ma n t T9 v", done(u64::MAX, Some(5), Some(9)));
    assert_eq!(touched, "VA 20 t5|18446744073709551615|");
    let created = outcome(true, 0, None, Some(9));
    assert_eq!(arithmetic("ma n N9 t", created), "HD t9|");
    assert_eq!(arithmetic("ma n q N9 t", created), "HD t9|");
    assert_eq!(arithmetic("ma n q N9 v", created), "VA 1|0|");
    for (outcome, code) in [
        (Outcome::NotFound, "NF"),
        (Outcome::NotStored, "NS"),
        (Outcome::Exists, "EX"),
    ] {
        assert_eq!(
            arithmetic("ma n q k Ox v c", outcome),
            format!("{code} kn Ox|")
        );
    }
}

#[test]
fn debug_and_noop() {
    const NOW: u32 = 1_700_000_000;
    let item = DumpedItem {
        key: b"a",
        expiry: 0,
        last_access: NOW - 5,
        cas_unique: 19,
        fetched: true,
        class: 1,
        total_bytes: 62,
        value_bytes: 1,
        client_flags: 0,
    };
    let debug = |request: &str, item: Option<&DumpedItem<'_>>| {
        reply(request, |out, command| match command {
            MetaCommand::Debug(key) => write::meta_debug(out, &key, item, NOW),
            other => panic!("{other:?}"),
        })
    };
    assert_eq!(
        debug("me a", Some(&item)),
        "ME a exp=-1 la=5 cas=19 fetch=yes cls=1 size=62|"
    );
    let expiring = DumpedItem {
        expiry: NOW + 100,
        fetched: false,
        ..item
    };
    assert_eq!(
        debug("me YQ== b", Some(&expiring)),
        "ME YQ== exp=100 la=5 cas=19 fetch=no cls=1 size=62|"
    );
    assert_eq!(debug("me a", None), "EN|");
    assert_eq!(
        reply("mn", |out, _| write::status(out, Status::MetaNoop, false)),
        "MN|"
    );
}
