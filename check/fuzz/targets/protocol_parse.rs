//! The parser on any bytes: it does not panic, keeps within its input and gives the same result for a shorter
//! input or asks for more. Every parsed command can be answered.
#![no_main]

use flowstone_protocol::write::{self, Counted, DumpedItem, ItemMeta, Outcome};
use flowstone_protocol::{Command, KEY_MAX_BYTES, Limits, MetaCommand, Parsed, Refused, parse};
use libfuzzer_sys::fuzz_target;

const LIMITS: Limits = Limits {
    max_value_bytes: 64,
    max_line_bytes: 512,
    max_multiget_bytes: 1024,
};

fuzz_target!(|input: &[u8]| {
    let whole = parse(input, &LIMITS);
    match whole {
        Parsed::Incomplete { need: None } => assert!(input.len() < LIMITS.max_multiget_bytes),
        Parsed::Incomplete { need: Some(need) } => {
            assert!(need > input.len());
            assert!(need <= LIMITS.max_line_bytes + LIMITS.max_value_bytes + 2);
        }
        Parsed::Command { command, consumed } => {
            assert!(consumed > 0 && consumed <= input.len());
            check_command(&command);
        }
        Parsed::Refused(Refused {
            reply,
            consumed,
            close,
            invalidates,
            ..
        }) => {
            assert!(consumed > 0 && consumed <= input.len());
            assert!(close || reply.as_bytes().ends_with(b"\r\n"));
            if let Some(key) = invalidates {
                check_key(key.decode(&mut [0; KEY_MAX_BYTES]));
            }
        }
        Parsed::Binary(_) => assert!(input[0] == 0x80 && input.len() >= 24),
    }
    for end in 0..input.len() {
        match parse(&input[..end], &LIMITS) {
            Parsed::Incomplete { .. } => {}
            // The parser drops all bytes received of an endless line.
            Parsed::Refused(Refused {
                close: true,
                consumed,
                ..
            }) if consumed == end => {
                assert!(matches!(whole, Parsed::Refused(Refused { close: true, .. })));
            }
            part => assert_eq!(part, whole),
        }
    }
});

fn check_key(key: &[u8]) {
    assert!(!key.is_empty() && key.len() <= KEY_MAX_BYTES);
}

fn check_command(command: &Command<'_>) {
    let mut out = Vec::new();
    match command {
        Command::Get { keys, .. } | Command::GetAndTouch { keys, .. } => {
            let expected = keys.len();
            let mut seen = 0;
            for key in *keys {
                check_key(key);
                seen += 1;
            }
            assert_eq!(seen, expected);
        }
        Command::Store { key, value, .. } => {
            check_key(key);
            assert!(value.len() <= LIMITS.max_value_bytes);
        }
        Command::Delete { key, .. }
        | Command::Arithmetic { key, .. }
        | Command::Touch { key, .. } => check_key(key),
        Command::Meta(MetaCommand::Get(get)) => {
            check_key(get.key.decode(&mut [0; KEY_MAX_BYTES]));
            write::meta_get_hit(&mut out, get, &ItemMeta::default(), b"");
            write::meta_get_miss(&mut out, get);
            check_lines(&out);
        }
        Command::Meta(MetaCommand::Set(set)) => {
            check_key(set.request.key.decode(&mut [0; KEY_MAX_BYTES]));
            write::meta_set(&mut out, set, Outcome::Exists);
            check_lines(&out);
        }
        Command::Meta(MetaCommand::Delete(delete)) => {
            check_key(delete.key.decode(&mut [0; KEY_MAX_BYTES]));
            write::meta_delete(&mut out, delete, Outcome::NotFound);
            check_lines(&out);
        }
        Command::Meta(MetaCommand::Arithmetic(arithmetic)) => {
            check_key(arithmetic.key.decode(&mut [0; KEY_MAX_BYTES]));
            let counted = Counted {
                value: 7,
                created: false,
                item: ItemMeta::default(),
            };
            write::meta_arithmetic(&mut out, arithmetic, Outcome::Done(counted));
            write::meta_arithmetic(&mut out, arithmetic, Outcome::NotFound);
            check_lines(&out);
        }
        Command::Meta(MetaCommand::Debug(sent)) => {
            let mut buffer = [0; KEY_MAX_BYTES];
            let key = sent.decode(&mut buffer);
            check_key(key);
            let item = DumpedItem {
                key,
                expiry: 0,
                last_access: 0,
                cas_unique: 1,
                fetched: false,
                class: 1,
                total_bytes: 64,
                value_bytes: 3,
                client_flags: 0,
            };
            write::meta_debug(&mut out, sent, Some(&item), 1);
            write::metadump_line(&mut out, &item);
            write::cachedump_line(&mut out, &item);
            write::mgdump_line(&mut out, key);
        }
        _ => {}
    }
}

/// Checks that replies end their lines, whatever the request holds.
fn check_lines(out: &[u8]) {
    assert!(out.is_empty() || out.ends_with(b"\r\n"));
}
