//! The reply to any request in the old binary protocol, which is not supported.

use crate::parse::BinaryRequest;

/// First byte of a response.
const RESPONSE_MAGIC: u8 = 0x81;
/// Status "not supported" of the binary protocol.
const STATUS: [u8; 2] = [0x00, 0x83];
/// Text that a client may show to its user.
const MESSAGE: &[u8] = b"the binary protocol is not supported: use the text or the meta protocol";

/// Appends a response to `request` in the binary protocol, with the status "not supported".
pub fn binary_refusal(out: &mut Vec<u8>, request: BinaryRequest) {
    let body_bytes = MESSAGE.len() as u32;
    // Magic, opcode, then no key, no extras and no data type.
    out.extend_from_slice(&[RESPONSE_MAGIC, request.opcode, 0, 0, 0, 0]);
    out.extend_from_slice(&STATUS);
    out.extend_from_slice(&body_bytes.to_be_bytes());
    out.extend_from_slice(&request.opaque);
    // No CAS unique.
    out.extend_from_slice(&[0; 8]);
    out.extend_from_slice(MESSAGE);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_a_frame_of_the_binary_protocol() {
        let mut out = Vec::new();
        let opaque = [1, 2, 3, 4];
        let request = BinaryRequest { opcode: 7, opaque };
        binary_refusal(&mut out, request);
        let (header, body) = out.split_at(24);
        let length = body.len() as u8;
        assert_eq!(
            header[..12],
            [0x81, 7, 0, 0, 0, 0, 0, 0x83, 0, 0, 0, length]
        );
        assert_eq!(header[12..], [1, 2, 3, 4, 0, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(body, MESSAGE);
    }
}
