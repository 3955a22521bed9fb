//! Writes requests of the memcached text and meta protocols.
//!
//! Numbers and names are written digit by digit into the connection's buffer; nothing is allocated
//! once that buffer has grown to what one batch needs.

use workload::{KeyId, KeyNames, MAX_KEY_BYTES};

/// Which commands are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Dialect {
    /// `get`, `set`, `delete`.
    Text,
    /// `mg`, `ms`, `md`; several keys at once as quiet `mg`s and a closing `mn`.
    Meta,
}

/// Appends requests to a buffer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Writer {
    pub(super) dialect: Dialect,
    pub(super) names: KeyNames,
    /// Ask for keys to be returned where the protocol leaves them out.
    pub(super) return_keys: bool,
}

impl Writer {
    /// A read of the keys of `ids`, of which there is at least one.
    #[inline]
    pub(super) fn get(&self, ids: &[KeyId], out: &mut Vec<u8>) {
        match self.dialect {
            Dialect::Text => {
                out.extend_from_slice(b"get");
                for &id in ids {
                    out.push(b' ');
                    self.name(id, out);
                }
                out.extend_from_slice(b"\r\n");
            }
            Dialect::Meta => {
                let flags: &[u8] = match (ids.len() > 1, self.return_keys) {
                    (true, _) => b" v k q\r\n",
                    (false, true) => b" v k\r\n",
                    (false, false) => b" v\r\n",
                };
                for &id in ids {
                    out.extend_from_slice(b"mg ");
                    self.name(id, out);
                    out.extend_from_slice(flags);
                }
                if ids.len() > 1 {
                    out.extend_from_slice(b"mn\r\n");
                }
            }
        }
    }

    /// The line that announces a value of `len` bytes; value and `\r\n` follow.
    #[inline]
    pub(super) fn set(&self, id: KeyId, len: usize, out: &mut Vec<u8>) {
        let (command, flags): (&[u8], &[u8]) = match self.dialect {
            Dialect::Text => (b"set ", b" 0 0 "),
            Dialect::Meta => (b"ms ", b" "),
        };
        out.extend_from_slice(command);
        self.name(id, out);
        out.extend_from_slice(flags);
        let mut digits = [0; 20];
        let mut at = digits.len();
        let mut rest = len;
        loop {
            at -= 1;
            digits[at] = b'0' + (rest % 10) as u8;
            rest /= 10;
            if rest == 0 {
                break;
            }
        }
        out.extend_from_slice(&digits[at..]);
        out.extend_from_slice(b"\r\n");
    }

    /// A removal.
    #[inline]
    pub(super) fn delete(&self, id: KeyId, out: &mut Vec<u8>) {
        out.extend_from_slice(match self.dialect {
            Dialect::Text => b"delete ",
            Dialect::Meta => b"md ",
        });
        self.name(id, out);
        out.extend_from_slice(b"\r\n");
    }

    #[inline]
    fn name(&self, id: KeyId, out: &mut Vec<u8>) {
        let mut name = [0; MAX_KEY_BYTES];
        let len = self.names.write(id, &mut name);
        out.extend_from_slice(&name[..len]);
    }
}

/// The key in a line that announces a value, if it is there.
pub(super) fn key_of_value_line(line: &[u8]) -> Option<&[u8]> {
    if let Some(rest) = line.strip_prefix(b"VALUE ") {
        return rest.split(|&byte| byte == b' ').next();
    }
    line.split(|&byte| byte == b' ')
        .skip(2)
        .find_map(|flag| flag.strip_prefix(b"k"))
}

#[cfg(test)]
mod tests {
    use workload::{KeySize, Settings, Workload};

    use super::*;

    fn text_of(dialect: Dialect, write: impl Fn(&Writer, &mut Vec<u8>)) -> String {
        let settings = Settings {
            key_size: KeySize::Fixed(8),
            ..Settings::default()
        };
        let names = Workload::by_name("uniform", settings).unwrap().key_names();
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
        let (one, two) = (KeyId(1), KeyId(2));
        for (dialect, expected) in [
            (Text, "get 00000001\r\nget 00000001 00000002\r\n"),
            (
                Meta,
                "mg 00000001 v\r\nmg 00000001 v k q\r\nmg 00000002 v k q\r\nmn\r\n",
            ),
        ] {
            let text = text_of(dialect, |writer, out| {
                writer.get(&[one], out);
                writer.get(&[one, two], out);
            });
            assert_eq!(text, expected);
        }
        for (dialect, expected) in [
            (
                Text,
                "set 00000001 0 0 0\r\nset 00000002 0 0 1048576\r\ndelete 00000001\r\n",
            ),
            (
                Meta,
                "ms 00000001 0\r\nms 00000002 1048576\r\nmd 00000001\r\n",
            ),
        ] {
            let text = text_of(dialect, |writer, out| {
                writer.set(one, 0, out);
                writer.set(two, 1 << 20, out);
                writer.delete(one, out);
            });
            assert_eq!(text, expected);
        }
    }

    #[test]
    fn keys_are_found_in_value_lines() {
        assert_eq!(key_of_value_line(b"VALUE key:1 0 5"), Some(&b"key:1"[..]));
        assert_eq!(key_of_value_line(b"VA 5 f0 kkey:1 t9"), Some(&b"key:1"[..]));
        assert_eq!(key_of_value_line(b"VA 5"), None);
    }
}
