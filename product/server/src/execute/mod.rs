//! Execution of each command.
//!
//! Commands that memory can answer are executed at once. A read that needs flash leaves a [pending
//! reply](batch::PendingReply). A write that has to wait does so here, in its turn.

pub(crate) mod batch;
mod get;
mod meta;
mod store;
mod text;

use std::io;

use protocol::write::{DumpedItem, metadump_line, mgdump_line};
use protocol::{Command, Refusal, Status, write};

use crate::replies::take_buffer;
use crate::stats::VERSION;
use crate::{dump, stats};
use batch::{Batch, TURN};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flow {
    Continue,
    Close,
}

impl<'i> Batch<'_, 'i> {
    pub(crate) async fn execute(&mut self, command: Command<'i>) -> io::Result<Flow> {
        // A single read is made by this very task, at the end; any other command may wait first.
        if !matches!(command, Command::Get { .. }) {
            self.start_reads();
        }
        match command {
            Command::Get { with_cas, keys } => self.get(keys, with_cas).await?,
            Command::Store { key, .. }
            | Command::Delete { key, .. }
            | Command::Arithmetic { key, .. }
            | Command::Touch { key, .. } => {
                if let Some(key) = self.engine.key(key) {
                    self.after_reads(key).await?;
                    self.write(key, &command).await;
                }
            }
            Command::Meta(meta) => {
                self.counters.cmd_meta.hit();
                self.meta(&meta).await?;
            }
            Command::GetAndTouch {
                with_cas,
                exptime,
                keys,
            } => {
                self.get_and_touch(keys, exptime, with_cas).await?;
            }
            Command::Quit => return Ok(Flow::Close),
            other => return Box::pin(self.administer(other)).await,
        }
        Ok(Flow::Continue)
    }

    /// Executes a command that concerns the server as a whole, after all earlier ones.
    async fn administer(&mut self, command: Command<'i>) -> io::Result<Flow> {
        self.fill().await?;
        match command {
            Command::Version => write::version(&mut self.replies.out, VERSION),
            Command::Tuning { noreply } => {
                write::status(&mut self.replies.out, Status::Ok, noreply);
            }
            Command::FlushAll { noreply, .. } if !self.shared.config.server.enable_flush_all => {
                write::refusal(&mut self.replies.out, Refusal::FlushNotAllowed, noreply);
            }
            Command::FlushAll { delay, noreply } => {
                self.counters.cmd_flush.hit();
                self.engine.flush_all(delay.flush_at(self.now)).await;
                write::status(&mut self.replies.out, Status::Ok, noreply);
            }
            Command::Sync { noreply } => match self.engine.sync().await {
                Ok(()) => write::status(&mut self.replies.out, Status::Ok, noreply),
                Err(error) => {
                    tracing::warn!(%error, "a client's sync");
                    write::refusal(&mut self.replies.out, Refusal::NotDurable, noreply);
                }
            },
            Command::CacheMemlimit { noreply } => {
                write::refusal(&mut self.replies.out, Refusal::MemlimitFixed, noreply);
            }
            Command::Stats {
                argument: Some(b"conns"),
            } => {
                stats::conns(self.shared, self.replies).await?;
                self.take_turns(TURN).await;
            }
            Command::Stats { argument } => {
                if self.replies.out.capacity() == 0 {
                    self.replies.out = take_buffer();
                }
                stats::write(self.shared, &mut self.replies.out, argument);
                // None of it is held while later commands wait for flash, nor while the ring sends it.
                if !self.replies.try_send_out()? {
                    Box::pin(self.replies.send_rest()).await?;
                }
            }
            Command::Shutdown { .. } if !self.shared.config.server.enable_shutdown => {
                write::refusal(&mut self.replies.out, Refusal::ShutdownNotEnabled, false);
            }
            Command::Shutdown { is_valid: false } => {
                write::refusal(&mut self.replies.out, Refusal::InvalidShutdownMode, false);
            }
            Command::Shutdown { .. } => {
                self.shared.stop.ask("a client's shutdown");
                return Ok(Flow::Close);
            }
            Command::Metadump { classes } => {
                let (shared, replies) = (self.shared, &mut *self.replies);
                dump::dump(
                    shared,
                    replies,
                    classes,
                    usize::MAX,
                    Status::End,
                    metadump_line,
                )
                .await?;
            }
            Command::Mgdump { classes } => {
                let (shared, replies) = (self.shared, &mut *self.replies);
                let line = |out: &mut Vec<u8>, item: &DumpedItem<'_>| mgdump_line(out, item.key);
                dump::dump(shared, replies, classes, usize::MAX, Status::MetaEnd, line).await?;
            }
            Command::Cachedump { class, limit } => {
                dump::cachedump(self.shared, self.replies, class, limit).await?;
            }
            // Executed by the caller.
            Command::Get { .. }
            | Command::GetAndTouch { .. }
            | Command::Store { .. }
            | Command::Delete { .. }
            | Command::Arithmetic { .. }
            | Command::Touch { .. }
            | Command::Meta(_)
            | Command::Quit => {}
        }
        Ok(Flow::Continue)
    }
}
