//! Properties of the parser: it reads back every written request, and neither content nor splitting of
//! the input breaks it.

use flowstone_protocol::{
    Command, Exptime, Limits, MetaCommand, Parsed, Refused, StoreVerb, parse, stored_decimal, write,
};
use proptest::collection::vec;
use proptest::prelude::*;

const LIMITS: Limits = Limits {
    max_value_bytes: 600,
    max_line_bytes: 2048,
    max_multiget_bytes: 4096,
};

/// A request before it is serialized.
#[derive(Debug, Clone)]
enum Sent {
    Get {
        cas: bool,
        keys: Vec<Vec<u8>>,
    },
    GetAndTouch {
        cas: bool,
        exptime: i64,
        keys: Vec<Vec<u8>>,
    },
    Store(StoreVerb, Vec<u8>, u32, i64, u64, Vec<u8>, bool),
    Delete(Vec<u8>, bool),
    Arithmetic(Vec<u8>, u64, bool, bool),
    Touch(Vec<u8>, i64, bool),
    FlushAll(i64, bool),
    MetaGet(Vec<u8>, Vec<String>),
    MetaSet(Vec<u8>, Vec<u8>, Vec<String>),
    MetaNoop,
}

/// Numbers that fit 32 bits, as times must outside storage commands.
fn signed() -> impl Strategy<Value = i64> {
    any::<i32>().prop_map(i64::from)
}

fn key() -> impl Strategy<Value = Vec<u8>> {
    let byte = any::<u8>().prop_map(|byte| match byte {
        0 | b'\n' | b'\r' | b' ' => b'_',
        byte => byte,
    });
    vec(byte, 1..=250)
}

fn value() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![vec(any::<u8>(), 0..=600), Just(b"\r\nget a\r\n".to_vec())]
}

fn verb() -> impl Strategy<Value = StoreVerb> {
    use StoreVerb::*;
    prop::sample::select(vec![Set, Add, Replace, Append, Prepend, Cas])
}

fn flags() -> impl Strategy<Value = Vec<String>> {
    let flag = prop::sample::select(vec![
        "v", "q", "k", "t", "s", "c", "f", "h", "l", "u", "Oabc", "T60", "N-1", "R30", "C7", "E8",
        "F9", "I", "x", "P", "L",
    ]);
    vec(flag, 0..8).prop_map(|flags| {
        let mut kept: Vec<String> = Vec::new();
        for flag in flags {
            if !kept
                .iter()
                .any(|other| other.as_bytes()[0] == flag.as_bytes()[0])
            {
                kept.push(flag.to_owned());
            }
        }
        kept
    })
}

fn sent() -> impl Strategy<Value = Sent> {
    prop_oneof![
        (any::<bool>(), vec(key(), 1..8)).prop_map(|(cas, keys)| Sent::Get { cas, keys }),
        (any::<bool>(), signed(), vec(key(), 1..4))
            .prop_map(|(cas, exptime, keys)| Sent::GetAndTouch { cas, exptime, keys }),
        (
            verb(),
            key(),
            any::<u32>(),
            any::<i64>(),
            any::<u64>(),
            value(),
            any::<bool>()
        )
            .prop_map(|(v, k, f, e, c, value, n)| Sent::Store(v, k, f, e, c, value, n)),
        (key(), any::<bool>()).prop_map(|(key, noreply)| Sent::Delete(key, noreply)),
        (key(), any::<u64>(), any::<bool>(), any::<bool>())
            .prop_map(|(k, d, decrement, n)| Sent::Arithmetic(k, d, decrement, n)),
        (key(), signed(), any::<bool>()).prop_map(|(k, e, n)| Sent::Touch(k, e, n)),
        (signed(), any::<bool>()).prop_map(|(delay, n)| Sent::FlushAll(delay, n)),
        (key(), flags()).prop_map(|(key, flags)| Sent::MetaGet(key, flags)),
        (key(), value(), flags()).prop_map(|(k, value, flags)| Sent::MetaSet(k, value, flags)),
        Just(Sent::MetaNoop),
    ]
}

impl Sent {
    /// Returns the request on the wire, with `spaces` between its words.
    fn serialize(&self, spaces: usize) -> Vec<u8> {
        let space = " ".repeat(spaces);
        let mut words: Vec<Vec<u8>> = Vec::new();
        let mut word = |text: &dyn std::fmt::Display| words.push(text.to_string().into_bytes());
        let (mut quiet, mut block) = (false, None);
        let push = |words: &mut Vec<Vec<u8>>, key: &[u8]| words.push(key.to_vec());
        match self {
            Self::Get { cas, keys } => {
                word(if *cas { &"gets" } else { &"get" });
                keys.iter().for_each(|key| push(&mut words, key));
            }
            Self::GetAndTouch { cas, exptime, keys } => {
                word(if *cas { &"gats" } else { &"gat" });
                word(exptime);
                keys.iter().for_each(|key| push(&mut words, key));
            }
            Self::Store(verb, key, client_flags, exptime, cas, value, noreply) => {
                word(&format!("{verb:?}").to_lowercase());
                push(&mut words, key);
                let mut word = |text: String| words.push(text.into_bytes());
                word(client_flags.to_string());
                word(exptime.to_string());
                word(value.len().to_string());
                if *verb == StoreVerb::Cas {
                    word(cas.to_string());
                }
                (quiet, block) = (*noreply, Some(value));
            }
            Self::Delete(key, noreply) => {
                word(&"delete");
                push(&mut words, key);
                quiet = *noreply;
            }
            Self::Arithmetic(key, delta, decrement, noreply) => {
                word(if *decrement { &"decr" } else { &"incr" });
                push(&mut words, key);
                words.push(delta.to_string().into_bytes());
                quiet = *noreply;
            }
            Self::Touch(key, exptime, noreply) => {
                word(&"touch");
                push(&mut words, key);
                words.push(exptime.to_string().into_bytes());
                quiet = *noreply;
            }
            Self::FlushAll(delay, noreply) => {
                word(&"flush_all");
                word(delay);
                quiet = *noreply;
            }
            Self::MetaGet(key, flags) => {
                word(&"mg");
                push(&mut words, key);
                flags
                    .iter()
                    .for_each(|flag| push(&mut words, flag.as_bytes()));
            }
            Self::MetaSet(key, value, flags) => {
                word(&"ms");
                push(&mut words, key);
                words.push(value.len().to_string().into_bytes());
                flags
                    .iter()
                    .for_each(|flag| push(&mut words, flag.as_bytes()));
                block = Some(value);
            }
            Self::MetaNoop => word(&"mn"),
        }
        if quiet {
            words.push(b"noreply".to_vec());
        }
        let mut line = words.join(space.as_bytes());
        line.extend_from_slice(b"\r\n");
        if let Some(value) = block {
            line.extend_from_slice(value);
            line.extend_from_slice(b"\r\n");
        }
        line
    }

    /// Returns whether `command` is this request.
    fn is(&self, command: &Command<'_>) -> bool {
        match (self, command) {
            (
                Self::Get { cas, keys },
                Command::Get {
                    with_cas,
                    keys: got,
                },
            ) => cas == with_cas && (*got).eq(keys.iter().map(Vec::as_slice)),
            (
                Self::GetAndTouch { cas, exptime, keys },
                Command::GetAndTouch {
                    with_cas,
                    exptime: time,
                    keys: got,
                },
            ) => cas == with_cas && *exptime == time.0 && (*got).eq(keys.iter().map(Vec::as_slice)),
            (Self::Store(verb, key, flags, exptime, cas, value, noreply), _) => {
                *command
                    == Command::Store {
                        verb: *verb,
                        key,
                        client_flags: *flags,
                        exptime: Exptime(*exptime),
                        cas_unique: if *verb == StoreVerb::Cas { *cas } else { 0 },
                        value,
                        noreply: *noreply,
                    }
            }
            (&Self::Delete(ref key, noreply), _) => *command == Command::Delete { key, noreply },
            (&Self::Arithmetic(ref key, delta, decrement, noreply), _) => {
                *command
                    == Command::Arithmetic {
                        key,
                        delta,
                        decrement,
                        noreply,
                    }
            }
            (&Self::Touch(ref key, exptime, noreply), _) => {
                let exptime = Exptime(exptime);
                *command
                    == Command::Touch {
                        key,
                        exptime,
                        noreply,
                    }
            }
            (&Self::FlushAll(delay, noreply), _) => {
                let delay = Exptime(delay);
                *command == Command::FlushAll { delay, noreply }
            }
            (Self::MetaGet(key, flags), Command::Meta(MetaCommand::Get(get))) => {
                let sent = |letter: &str| flags.iter().any(|flag| flag.starts_with(letter));
                get.key.raw() == key
                    && get
                        .flags
                        .map(|flag| flag.letter)
                        .eq(flags.iter().map(|f| f.as_bytes()[0]))
                    && (get.value, get.quiet, get.no_bump) == (sent("v"), sent("q"), sent("u"))
                    && get.touch == sent("T").then_some(Exptime(60))
                    && get.vivify == sent("N").then_some(Exptime(-1))
                    && get.recache == sent("R").then_some(Exptime(30))
            }
            (Self::MetaSet(key, value, flags), Command::Meta(MetaCommand::Set(set))) => {
                let sent = |letter: &str| flags.iter().any(|flag| flag.starts_with(letter));
                let request = &set.request;
                request.key.raw() == key
                    && set.value == value
                    && request.client_flags == if sent("F") { 9 } else { 0 }
                    && request.touch == sent("T").then_some(Exptime(60))
                    && request.compare_cas == sent("C").then_some(7)
                    && request.invalidate == (sent("I") && sent("C"))
            }
            (Self::MetaNoop, Command::Meta(MetaCommand::Noop)) => true,
            _ => false,
        }
    }
}

/// Checks one request against every shorter prefix of it.
fn check_prefixes(request: &[u8]) {
    for end in 0..request.len() {
        match parse(&request[..end], &LIMITS) {
            Parsed::Incomplete { need: None } => {}
            Parsed::Incomplete { need: Some(need) } => assert_eq!(need, request.len()),
            other => panic!("{end} of {} bytes: {other:?}", request.len()),
        }
    }
}

proptest! {
    #[test]
    fn the_parser_reads_back_what_was_sent(
        sent in sent(),
        spaces in 1usize..3,
        behind in vec(any::<u8>(), 0..20),
    ) {
        let request = sent.serialize(spaces);
        let input = [&request[..], &behind].concat();
        match parse(&input, &LIMITS) {
            Parsed::Command { command, consumed } => {
                prop_assert_eq!(consumed, request.len());
                prop_assert!(sent.is(&command), "{:?} came of {:?}", command, sent);
            }
            other => prop_assert!(false, "{:?} came of {:?}", other, sent),
        }
        check_prefixes(&request);
    }

    #[test]
    fn arbitrary_bytes_are_understood_or_refused(input in vec(any::<u8>(), 0..300)) {
        check_any(&input);
    }

    #[test]
    fn near_misses_are_understood_or_refused(
        sent in sent(),
        at in any::<prop::sample::Index>(),
        byte in any::<u8>(),
        cut in any::<bool>(),
    ) {
        let mut request = sent.serialize(1);
        let at = at.index(request.len());
        if cut {
            request.remove(at);
        } else {
            request[at] = byte;
        }
        check_any(&request);
    }

    #[test]
    fn numbers_in_replies_read_back(value in any::<u64>()) {
        let mut out = Vec::new();
        write::number(&mut out, value, false);
        prop_assert_eq!(stored_decimal(&out), Some(value));
    }
}

/// Checks that the answer to any input is sound, and that each prefix is incomplete or gets the same answer.
fn check_any(input: &[u8]) {
    let whole = parse(input, &LIMITS);
    if let Parsed::Command { consumed, .. } | Parsed::Refused(Refused { consumed, .. }) = whole {
        assert!(consumed <= input.len() && consumed > 0);
    }
    if let Parsed::Incomplete { need: Some(need) } = whole {
        assert!(need > input.len());
        assert!(need <= LIMITS.max_line_bytes + LIMITS.max_value_bytes + 2);
    }
    for end in 0..input.len() {
        let part = parse(&input[..end], &LIMITS);
        let is_incomplete = matches!(part, Parsed::Incomplete { .. });
        assert!(is_incomplete || part == whole, "{part:?} became {whole:?}");
    }
}
