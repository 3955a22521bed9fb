//! TCP and unix sockets of the live runtime.
//!
//! An idle connection holds no receive buffer. Arriving bytes land in a buffer of the worker's pool, which gets the buffer back
//! once the caller has consumed them.
//!
//! A [`Stream`] may move to another worker between operations. Errors are those of the sockets. An empty [`Received`] marks the
//! end of the peer's bytes.

mod listener;
pub(crate) mod ready;
mod received;
mod stream;

pub use listener::{Listener, PeerAddr};
pub use received::{RECV_BUFFER_BYTES, Received, buffer_wanted};
pub use stream::{Closer, Stream};
