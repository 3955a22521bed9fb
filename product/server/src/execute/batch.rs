//! [`Batch`]: the commands of a connection that are executed together.

use std::io;
use std::sync::Arc;

use protocol::write::{DumpedItem, metadump_line, mgdump_line};
use protocol::{Command, KEY_MAX_BYTES, Keys, MetaCommand, Refusal, Status, write};

use super::Flow;
use super::get::Answers;
use super::meta::MetaWrite;
use super::pending::Ask;
use super::store::Writer;
use super::text::TextWrite;
use crate::replies::take_buffer;
use crate::shared::Shared;
use crate::stats::VERSION;
use crate::{dump, stats};

/// Commands and keys of a connection that are executed before others have a turn.
pub(crate) const TURN: u32 = 128;

/// Requests of a connection that have arrived together, while they are executed.
pub(crate) struct Batch<'c, 'i> {
    pub(crate) shared: &'c Arc<Shared>,
    pub(crate) answers: Answers<'c, 'i>,
    pub(crate) max_value_bytes: usize,
    /// Commands and keys since another connection had a turn.
    pub(crate) since_turn: u32,
}

impl<'i> Batch<'_, 'i> {
    /// Counts commands or keys. Once there are [`TURN`], lets the worker's other connections go on.
    #[inline]
    pub(crate) async fn take_turns(&mut self, more: u32) {
        self.since_turn += more;
        if self.since_turn >= TURN {
            self.since_turn = 0;
            self.answers.counters.conn_yields.hit();
            runtime::yield_now().await;
        }
    }

    pub(crate) async fn execute(&mut self, command: Command<'i>) -> io::Result<Flow> {
        // A single read is made by this very task, at the end; any other command may wait first.
        if !matches!(command, Command::Get { .. }) {
            self.answers.pending.start_reads();
        }
        match command {
            Command::Get { with_cas, keys } => self.get(keys, with_cas).await?,
            Command::Store { key, .. }
            | Command::Delete { key, .. }
            | Command::Arithmetic { key, .. }
            | Command::Touch { key, .. } => {
                if let Some(key) = self.answers.engine.key(key) {
                    self.answers.after_reads(key).await?;
                    let to = self.writer();
                    TextWrite { to, key }.run(&command).await;
                }
            }
            Command::Meta(meta) => {
                self.answers.counters.cmd_meta.hit();
                self.meta(&meta).await?;
            }
            Command::GetAndTouch {
                with_cas,
                exptime,
                keys,
            } => {
                self.answers.get_and_touch(keys, exptime, with_cas).await?;
            }
            Command::Quit => return Ok(Flow::Close),
            other => return Box::pin(self.administer(other)).await,
        }
        Ok(Flow::Continue)
    }

    async fn get(&mut self, keys: Keys<'i>, with_cas: bool) -> io::Result<()> {
        for bytes in keys {
            self.answers.counters.cmd_get.hit();
            if let Some(key) = self.answers.engine.key(bytes) {
                self.answers.ask(Ask::Get { key, with_cas }).await?;
                self.answers.send_if_full().await?;
                self.take_turns(1).await;
            }
        }
        self.answers
            .replies
            .out
            .extend_from_slice(Status::End.as_bytes());
        Ok(())
    }

    async fn meta(&mut self, command: &MetaCommand<'i>) -> io::Result<()> {
        let sent = match command {
            MetaCommand::Get(request) => return self.answers.meta_get(request).await,
            MetaCommand::Noop => {
                write::status(&mut self.answers.replies.out, Status::MetaNoop, false);
                return Ok(());
            }
            MetaCommand::Set(set) => &set.request.key,
            MetaCommand::Delete(request) | MetaCommand::Arithmetic(request) => &request.key,
            MetaCommand::Debug(key) => key,
        };
        let mut buffer = [0; KEY_MAX_BYTES];
        let Some(key) = self.answers.engine.key(sent.decode(&mut buffer)) else {
            return Ok(());
        };
        self.answers.after_reads(key).await?;
        let to = self.writer();
        MetaWrite { to, key }.run(command).await;
        Ok(())
    }

    fn writer(&mut self) -> Writer<'_> {
        Writer {
            engine: self.answers.engine,
            counters: self.answers.counters,
            out: &mut self.answers.replies.out,
            now: self.answers.now,
            max_value_bytes: self.max_value_bytes,
        }
    }

    /// Executes a command that concerns the server as a whole, after all earlier ones.
    async fn administer(&mut self, command: Command<'i>) -> io::Result<Flow> {
        self.answers.fill().await?;
        match command {
            Command::Version => write::version(&mut self.answers.replies.out, VERSION),
            Command::Tuning { noreply } => {
                write::status(&mut self.answers.replies.out, Status::Ok, noreply);
            }
            Command::FlushAll { noreply, .. } if !self.shared.config.server.enable_flush_all => {
                write::refusal(
                    &mut self.answers.replies.out,
                    Refusal::FlushNotAllowed,
                    noreply,
                );
            }
            Command::FlushAll { delay, noreply } => {
                self.answers.counters.cmd_flush.hit();
                let (engine, now) = (self.answers.engine, self.answers.now);
                match delay.flush_at(now) {
                    past if past < now => engine.flush_older(past).await,
                    deadline => engine.flush_all(deadline).await,
                }
                write::status(&mut self.answers.replies.out, Status::Ok, noreply);
            }
            Command::Sync { noreply } if !self.shared.config.server.enable_sync => {
                write::refusal(
                    &mut self.answers.replies.out,
                    Refusal::SyncNotAllowed,
                    noreply,
                );
            }
            Command::Sync { noreply } => match self.answers.engine.sync().await {
                Ok(()) => write::status(&mut self.answers.replies.out, Status::Ok, noreply),
                Err(error) => {
                    tracing::warn!(%error, "a client's sync");
                    write::refusal(&mut self.answers.replies.out, Refusal::NotDurable, noreply);
                }
            },
            Command::CacheMemlimit { noreply } => {
                write::refusal(
                    &mut self.answers.replies.out,
                    Refusal::MemlimitFixed,
                    noreply,
                );
            }
            Command::Stats {
                argument: Some(b"conns"),
            } => {
                stats::conns(self.shared, self.answers.replies).await?;
                self.take_turns(TURN).await;
            }
            Command::Stats { argument } => {
                if self.answers.replies.out.capacity() == 0 {
                    self.answers.replies.out = take_buffer();
                }
                stats::write(self.shared, &mut self.answers.replies.out, argument);
                // None of it is held while later commands wait for flash, nor while the ring sends it.
                if !self.answers.replies.try_send_out()? {
                    Box::pin(self.answers.replies.send_rest()).await?;
                }
            }
            Command::Shutdown { .. } if !self.shared.config.server.enable_shutdown => {
                write::refusal(
                    &mut self.answers.replies.out,
                    Refusal::ShutdownNotEnabled,
                    false,
                );
            }
            Command::Shutdown { is_valid: false } => {
                write::refusal(
                    &mut self.answers.replies.out,
                    Refusal::InvalidShutdownMode,
                    false,
                );
            }
            Command::Shutdown { .. } => {
                self.shared.stop.ask("a client's shutdown");
                return Ok(Flow::Close);
            }
            Command::Metadump { classes } => {
                let (shared, replies) = (self.shared, &mut *self.answers.replies);
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
                let (shared, replies) = (self.shared, &mut *self.answers.replies);
                let line = |out: &mut Vec<u8>, item: &DumpedItem<'_>| mgdump_line(out, item.key);
                dump::dump(shared, replies, classes, usize::MAX, Status::MetaEnd, line).await?;
            }
            Command::Cachedump { class, limit } => {
                dump::cachedump(self.shared, self.answers.replies, class, limit).await?;
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
