//! Writes requests of the memcached text and meta protocols.
//!
//! Numbers and names are written digit by digit into the connection's buffer. Nothing is allocated once the
//! buffer has grown to the size of a batch.

use workload::{KeyId, KeyNames, MAX_KEY_BYTES, Request};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Dialect {
    /// `get`, `set`, `delete`.
    Text,
    /// `mg`, `ms`, `md`; several keys at once as quiet `mg`s and a closing `mn`.
    Meta,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Writer {
    pub(super) dialect: Dialect,
    pub(super) names: KeyNames,
    /// Whether to ask for keys in answers where the protocol leaves them out.
    pub(super) return_keys: bool,
}

impl Writer {
    /// Writes a read of the key of `first` and of `more` keys.
    #[inline]
    pub(super) fn get(&self, first: &Request, more: &[KeyId], out: &mut Vec<u8>) {
        let several = !more.is_empty();
        match self.dialect {
            Dialect::Text => {
                out.extend_from_slice(b"get ");
                self.name(first, out);
                for &id in more {
                    out.push(b' ');
                    self.name_of(id, out);
                }
                out.extend_from_slice(b"\r\n");
            }
            Dialect::Meta => {
                let flags: &[u8] = match (several, self.return_keys) {
                    (true, _) => b" v k q\r\n",
                    (false, true) => b" v k\r\n",
                    (false, false) => b" v\r\n",
                };
                out.extend_from_slice(b"mg ");
                self.name(first, out);
                out.extend_from_slice(flags);
                for &id in more {
                    out.extend_from_slice(b"mg ");
                    self.name_of(id, out);
                    out.extend_from_slice(flags);
                }
                if several {
                    out.extend_from_slice(b"mn\r\n");
                }
            }
        }
    }

    /// Writes the line that announces the value of `request`; the value and `\r\n` follow.
    #[inline]
    pub(super) fn set(&self, request: &Request, out: &mut Vec<u8>) {
        let ttl = request.ttl_s.min(LONGEST_TTL_S);
        match self.dialect {
            Dialect::Text => {
                out.extend_from_slice(b"set ");
                self.name(request, out);
                out.extend_from_slice(b" 0 ");
                number(ttl, out);
                out.push(b' ');
                number(request.value_len, out);
            }
            Dialect::Meta => {
                out.extend_from_slice(b"ms ");
                self.name(request, out);
                out.push(b' ');
                number(request.value_len, out);
                if ttl > 0 {
                    out.extend_from_slice(b" T");
                    number(ttl, out);
                }
            }
        }
        out.extend_from_slice(b"\r\n");
    }

    #[inline]
    pub(super) fn delete(&self, request: &Request, out: &mut Vec<u8>) {
        out.extend_from_slice(match self.dialect {
            Dialect::Text => b"delete ",
            Dialect::Meta => b"md ",
        });
        self.name(request, out);
        out.extend_from_slice(b"\r\n");
    }

    #[inline]
    fn name(&self, request: &Request, out: &mut Vec<u8>) {
        let mut name = [0; MAX_KEY_BYTES];
        let len = self.names.write_for(request, &mut name);
        out.extend_from_slice(&name[..len]);
    }

    #[inline]
    fn name_of(&self, id: KeyId, out: &mut Vec<u8>) {
        let mut name = [0; MAX_KEY_BYTES];
        let len = self.names.write(id, &mut name);
        out.extend_from_slice(&name[..len]);
    }
}

/// Longest time to live, in seconds: memcached takes longer ones as dates.
const LONGEST_TTL_S: u32 = 30 * 24 * 3600;

#[inline]
fn number(number: u32, out: &mut Vec<u8>) {
    out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
}

#[cfg(test)]
mod tests {
    use workload::{KeySize, Op, Settings, Workload};

    use super::*;

    fn text_of(dialect: Dialect, write: impl Fn(&Writer, &mut Vec<u8>)) -> String {
        let settings = Settings {
            key_size: Some(KeySize::Fixed(8)),
            ..Settings::default()
        };
        let names = Workload::parse("uniform", settings).unwrap().key_names();
        let mut out = Vec::new();
        write(
            &Writer {
                dialect,
                names,
                return_keys: false,
            },
            &mut out,
        );
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn requests_are_those_of_the_protocol() {
        use Dialect::{Meta, Text};
        let request = |key, value_len, ttl_s| Request {
            op: Op::Set,
            key: KeyId(key),
            key_len: None,
            value_len,
            ttl_s,
        };
        let (one, two) = (request(1, 0, 0), request(2, 1 << 20, 86_400));
        for (dialect, expected) in [
            (Text, "get 00000001\r\nget 00000001 00000002\r\n"),
            (
                Meta,
                "mg 00000001 v\r\nmg 00000001 v k q\r\nmg 00000002 v k q\r\nmn\r\n",
            ),
        ] {
            let text = text_of(dialect, |writer, out| {
                writer.get(&one, &[], out);
                writer.get(&one, &[two.key], out);
            });
            assert_eq!(text, expected);
        }
        for (dialect, expected) in [
            (
                Text,
                "set 00000001 0 0 0\r\nset 00000002 0 86400 1048576\r\ndelete 00000001\r\n",
            ),
            (
                Meta,
                "ms 00000001 0\r\nms 00000002 1048576 T86400\r\nmd 00000001\r\n",
            ),
        ] {
            let text = text_of(dialect, |writer, out| {
                writer.set(&one, out);
                writer.set(&two, out);
                writer.delete(&one, out);
            });
            assert_eq!(text, expected);
        }
    }
}
