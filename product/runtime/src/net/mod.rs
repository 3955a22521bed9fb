//! TCP and unix sockets of the live runtime.
//!
//! An idle connection holds no receive buffer: bytes land in a buffer of its worker's pool when
//! they arrive, and the buffer goes back when the caller has consumed them.
//!
//! A [`Stream`] may move to another worker between operations. Errors are those of the sockets;
//! the end of the peer's bytes is an empty [`Received`].

mod listener;
pub(crate) mod ready;
mod received;
mod stream;

pub use listener::{Listener, PeerAddr};
pub use received::{RECV_BUFFER_BYTES, Received, buffer_wanted};
pub use stream::{Closer, Stream};
