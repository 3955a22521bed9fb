//! One connection to the cache, one command at a time.

use std::io;
use std::time::Duration;

use protocol::client::{Answer, Reply, Violation, key_of};
use thiserror::Error;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::timeout;
use workload::Request;

use crate::bench::request::Writer;
use crate::bench::target::Target;

/// Longest wait for an answer.
const PATIENCE: Duration = Duration::from_secs(30);
/// Longest time to connect.
const CONNECT_PATIENCE: Duration = Duration::from_secs(5);
/// Maximum bytes of one `read`.
const READ_BYTES: usize = 64 << 10;

#[derive(Debug, Error)]
pub(super) enum CacheError {
    /// The connection has ended; a new one may work.
    #[error("the cache at {target} went away: {error}")]
    Gone { target: String, error: io::Error },
    /// An error that a new connection would not avoid, in one line.
    #[error("{0}")]
    Unusable(String),
}

trait Duplex: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Duplex for T {}

pub(super) struct Cache {
    target: Target,
    stream: Box<dyn Duplex>,
    writer: Writer,
    reply: Reply,
    input: Box<[u8]>,
    output: Vec<u8>,
}

impl Cache {
    pub(super) async fn connect(target: &Target, writer: Writer) -> Result<Self, CacheError> {
        let open = async {
            Ok(match target {
                Target::Tcp(address) => {
                    let stream = TcpStream::connect(address).await?;
                    stream.set_nodelay(true)?;
                    Box::new(stream) as Box<dyn Duplex>
                }
                Target::Unix(path) => Box::new(UnixStream::connect(path).await?),
            })
        };
        let opened = timeout(CONNECT_PATIENCE, open).await;
        let stream =
            opened
                .unwrap_or_else(|late| Err(late.into()))
                .map_err(|error: io::Error| {
                    CacheError::Unusable(format!(
                        "cannot connect to the cache at {target}: {error}"
                    ))
                })?;
        Ok(Self {
            target: target.clone(),
            stream,
            writer,
            reply: Reply::default(),
            input: vec![0; READ_BYTES].into_boxed_slice(),
            output: Vec::new(),
        })
    }

    /// Replaces a connection that has ended by a new one.
    pub(super) async fn reconnect(&mut self) -> Result<(), CacheError> {
        *self = Self::connect(&self.target, self.writer).await?;
        Ok(())
    }

    /// Returns the value of the last [`Answer::Value`].
    pub(super) fn value(&self) -> &[u8] {
        self.reply.value()
    }

    /// Returns the key of that answer, if the server names it.
    pub(super) fn owner(&self) -> Option<&[u8]> {
        key_of(self.reply.head())
    }

    pub(super) async fn get(&mut self, request: &Request) -> Result<Answer, CacheError> {
        self.writer.get(request, &[], &mut self.output);
        self.ask().await
    }

    pub(super) async fn set(
        &mut self,
        request: &Request,
        value: &[u8],
    ) -> Result<Answer, CacheError> {
        // The database's value may have another length than the request.
        let request = Request {
            value_len: u32::try_from(value.len()).unwrap_or(u32::MAX),
            ..*request
        };
        self.writer.set(&request, &mut self.output);
        self.output.extend_from_slice(value);
        self.output.extend_from_slice(b"\r\n");
        self.ask().await
    }

    pub(super) async fn delete(&mut self, request: &Request) -> Result<Answer, CacheError> {
        self.writer.delete(request, &mut self.output);
        self.ask().await
    }

    /// Sends the output and waits for the answer.
    async fn ask(&mut self) -> Result<Answer, CacheError> {
        let answer = timeout(PATIENCE, self.exchange()).await;
        answer.unwrap_or_else(|_| {
            let target = &self.target;
            let words = format!("the cache at {target} has not answered for {PATIENCE:?}");
            Err(CacheError::Unusable(words))
        })
    }

    async fn exchange(&mut self) -> Result<Answer, CacheError> {
        let target = &self.target;
        let gone = |error| CacheError::Gone {
            target: target.to_string(),
            error,
        };
        self.stream.write_all(&self.output).await.map_err(gone)?;
        self.output.clear();
        loop {
            let count = self.stream.read(&mut self.input).await.map_err(gone)?;
            if count == 0 {
                return Err(gone(io::Error::other("it closed the connection")));
            }
            let answer = self.reply.feed(&self.input[..count]);
            let wrong =
                |wrong: Violation| CacheError::Unusable(format!("the cache at {target}: {wrong}"));
            if let Some(answer) = answer.map_err(wrong)? {
                return Ok(answer);
            }
        }
    }
}
