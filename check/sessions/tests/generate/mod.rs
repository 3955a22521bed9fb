//! Streams drawn from a seed: mostly commands that mean something, on a few keys.

use rand::rngs::SmallRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};

const KEYS: &[&str] = &[
    "a",
    "b",
    "c",
    "d",
    "e",
    "long-key-of-another",
    "f1",
    "f2",
    "f3",
];
const EXPIRIES: &[&str] = &[
    "0",
    "0",
    "0",
    "0",
    "1",
    "2",
    "5",
    "30",
    "100",
    "-1",
    "1800000050",
    "2592001",
];
const FLAGS: &[&str] = &[
    "v", "v", "k", "c", "f", "h", "l", "s", "t", "q", "u", "I", "x", "b", "Oabc", "T0", "T1",
    "T30", "N0", "N2", "N30", "R1", "R30", "C1", "C5", "E7", "E0", "F3", "MA", "MP", "ME", "MR",
    "MS", "MD", "MI", "J13", "D2", "D1",
];
const ODD: &[&str] = &[
    "stats\r\n",
    "stats items\r\n",
    "stats reset\r\n",
    "version\r\n",
    "verbosity 1\r\n",
    "quit\r\n",
    "get\r\n",
    "bogus\r\n",
    "mg a !\r\n",
    "set a 0 0 x\r\n",
    "lru_crawler metadump all\r\n",
    "lru_crawler mgdump all\r\n",
    "stats cachedump 1 0\r\n",
    "flush_all -1\r\n",
    "flush_all 0 noreply\r\n",
    "shutdown\r\n",
    "cache_memlimit 64\r\n",
    "set a 0 0 20001\r\nx\r\n",
];

/// Returns the stream of a seed.
pub(crate) fn stream(seed: u64) -> Vec<u8> {
    let random = &mut SmallRng::seed_from_u64(seed);
    let mut bytes: Vec<u8> = (0..4).map(|_| random.random()).collect();
    for _ in 0..random.random_range(5..80) {
        match random.random_range(0..100) {
            0..64 => command(random, &mut bytes),
            64..72 => bytes.extend([1, random.random_range(0..4)]),
            72..76 => bytes.push(2),
            76..82 => bytes.extend([3, random.random()]),
            82..88 => bytes.extend([4, random.random()]),
            88..90 => bytes.extend([0x0f, random.random()]),
            90..92 => bytes.extend([5, random.random()]),
            92..94 => bytes.extend([6, random.random(), random.random_range(0..60)]),
            94..96 => bytes.extend([7, random.random()]),
            96 => bytes.extend([8, random.random_range(0..40)]),
            97 => bytes.push(0x0b),
            98 => bytes.extend([0x0c, random.random()]),
            _ => bytes.extend([0x0e, random.random_range(0..4)]),
        }
    }
    bytes
}

fn pick<'a>(random: &mut SmallRng, from: &[&'a str]) -> &'a str {
    from.choose(random).copied().unwrap_or_default()
}

fn value(random: &mut SmallRng) -> String {
    match random.random_range(0..12) {
        0..5 => random.random_range(0..2000u64).to_string(),
        5 => u64::MAX.to_string(),
        6 => String::new(),
        7 => "x".repeat(random.random_range(0..3000)),
        8 => "y".repeat(random.random_range(0..20_000)),
        _ => "value".to_owned(),
    }
}

fn command(random: &mut SmallRng, bytes: &mut Vec<u8>) {
    let key = pick(random, KEYS);
    let expiry = pick(random, EXPIRIES);
    let noreply = if random.random_ratio(1, 8) {
        " noreply"
    } else {
        ""
    };
    let number = random.random_range(0..40);
    let text = match random.random_range(0..30) {
        0..4 => format!("get {key}\r\n"),
        4 => format!(
            "gets {key} {} {}\r\n",
            pick(random, KEYS),
            pick(random, KEYS)
        ),
        5 => format!("gat {expiry} {key} {}\r\n", pick(random, KEYS)),
        6..10 => {
            let verb = pick(
                random,
                &["set", "set", "set", "add", "replace", "append", "prepend"],
            );
            let value = value(random);
            format!(
                "{verb} {key} {number} {expiry} {}{noreply}\r\n{value}\r\n",
                value.len()
            )
        }
        10 => {
            let value = value(random);
            format!(
                "cas {key} {number} {expiry} {} {number}{noreply}\r\n{value}\r\n",
                value.len()
            )
        }
        11 => format!("delete {key}{noreply}\r\n"),
        12 => format!("incr {key} {number}{noreply}\r\n"),
        13 => format!("decr {key} {number}{noreply}\r\n"),
        14 => format!("touch {key} {expiry}{noreply}\r\n"),
        15..18 => format!("mg {key}{}\r\n", flags(random)),
        18..21 => {
            let value = value(random);
            format!("ms {key} {}{}\r\n{value}\r\n", value.len(), flags(random))
        }
        21..23 => format!("md {key}{}\r\n", flags(random)),
        23..25 => format!("ma {key}{}\r\n", flags(random)),
        25 => format!("me {key}\r\n"),
        26 => pick(
            random,
            &[
                "flush_all\r\n",
                "flush_all 2\r\n",
                "flush_all 30\r\n",
                "flush_all 1799999999\r\n",
                "flush_all 1800000003\r\n",
            ],
        )
        .to_owned(),
        27 => "flowstone sync\r\n".to_owned(),
        _ => pick(random, ODD).to_owned(),
    };
    bytes.extend_from_slice(text.as_bytes());
}

fn flags(random: &mut SmallRng) -> String {
    let mut letters = Vec::new();
    let mut text = String::new();
    for _ in 0..random.random_range(0..6) {
        let flag = pick(random, FLAGS);
        let letter = flag.as_bytes()[0];
        if letter != b'b' && !letters.contains(&letter) {
            letters.push(letter);
            text.push(' ');
            text.push_str(flag);
        }
    }
    text
}
