//! A connection: a stream of bytes gives the same requests however it is cut into reads.
//!
//! The first bytes of the input choose the cuts, the rest is the stream.
#![no_main]

use flowstone_protocol::{Limits, Parsed, Refused, parse};
use libfuzzer_sys::fuzz_target;

const LIMITS: Limits = Limits {
    max_value_bytes: 64,
    max_line_bytes: 256,
    max_multiget_bytes: 512,
};

/// Bytes of input that choose the cuts.
const CUTS: usize = 8;

fuzz_target!(|input: &[u8]| {
    let Some((cuts, stream)) = input.split_at_checked(CUTS) else {
        return;
    };
    let whole = session(stream, |_| stream.len());
    let mut read = 0;
    let parts = session(stream, |_| {
        read += 1;
        1 + usize::from(cuts[read % CUTS])
    });
    assert_eq!(whole, parts);
    assert_eq!(whole, session(stream, |_| 1));
});

/// Returns the requests that a server would see in `stream`, read in pieces of the sizes that `next_read`
/// gives.
fn session(stream: &[u8], mut next_read: impl FnMut(usize) -> usize) -> Vec<String> {
    let mut seen = Vec::new();
    let mut unread: Vec<u8> = Vec::new();
    let mut arrived = 0;
    let mut swallow = 0;
    loop {
        let dropped = swallow.min(unread.len());
        unread.drain(..dropped);
        swallow -= dropped;
        let (consumed, stop) = match parse(&unread, &LIMITS) {
            Parsed::Incomplete { need } => {
                assert!(need.is_none_or(|need| need > unread.len()));
                if arrived == stream.len() {
                    seen.push(format!("{} bytes left", unread.len()));
                    return seen;
                }
                let end = stream.len().min(arrived + next_read(arrived));
                unread.extend_from_slice(&stream[arrived..end]);
                arrived = end;
                continue;
            }
            Parsed::Command { command, consumed } => {
                seen.push(format!("{command:?}"));
                (consumed, false)
            }
            Parsed::Refused(Refused {
                reply,
                consumed,
                swallow: block,
                quiet,
                invalidates,
                close,
            }) => {
                seen.push(format!("{reply:?} {block} {quiet} {invalidates:?} {close}"));
                swallow = block;
                (consumed, close)
            }
            Parsed::Binary(_) => {
                seen.push("binary".to_owned());
                (0, true)
            }
        };
        if stop {
            return seen;
        }
        assert!(consumed > 0);
        unread.drain(..consumed);
    }
}
