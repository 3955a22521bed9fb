//! What each command means.
//!
//! Commands that memory can answer are carried out at once; a read that needs flash leaves a
//! [`hole`] in the replies; a write that has to wait does so here, in its turn.

pub(crate) mod hole;
mod meta;
mod text;

use std::io;

use engine::{CacheError, Key};
use protocol::{Command, CrawlerCommand, Refusal, ShutdownMode, Status, write};

use crate::connection::{Connection, Flow};
use crate::{VERSION, dump, stats};
use hole::{Hole, start_all};

impl Connection {
    pub(crate) async fn execute<'i>(
        &mut self,
        command: Command<'i>,
        holes: &mut Vec<Hole<'i>>,
    ) -> io::Result<Flow> {
        // A single read is made by this very task, at the end; any other command may wait first.
        if !matches!(command, Command::Get { .. }) {
            start_all(holes);
        }
        match command {
            Command::Get { with_cas, keys } => self.get(keys, with_cas, holes).await?,
            Command::Store { .. } => self.store(&command, holes).await?,
            Command::Meta(meta) => {
                self.counters.cmd_meta.hit();
                self.meta(&meta, holes).await?;
            }
            Command::GetAndTouch {
                with_cas,
                exptime,
                keys,
            } => {
                self.get_and_touch(keys, exptime, with_cas, holes).await?;
            }
            Command::Delete { key, noreply } => self.delete(key, noreply, holes).await?,
            Command::Arithmetic {
                key,
                delta,
                decrement,
                noreply,
            } => {
                self.arithmetic(key, delta, decrement, noreply, holes)
                    .await?;
            }
            Command::Touch {
                key,
                exptime,
                noreply,
            } => {
                self.touch(key, exptime, noreply, holes).await?;
            }
            Command::Quit => return Ok(Flow::Close),
            other => return self.administer(other, holes).await,
        }
        Ok(Flow::Continue)
    }

    /// The commands that concern the server as a whole. They wait for what came before them.
    async fn administer<'i>(
        &mut self,
        command: Command<'i>,
        holes: &mut Vec<Hole<'i>>,
    ) -> io::Result<Flow> {
        self.fill(holes).await?;
        match command {
            Command::Version => write::version(&mut self.out, VERSION),
            Command::Verbosity { noreply, .. } | Command::Tuning { noreply } => {
                write::status(&mut self.out, Status::Ok, noreply);
            }
            Command::FlushAll { delay, noreply } => {
                if self.shared.config.server.enable_flush_all {
                    self.counters.cmd_flush.hit();
                    self.engine.flush_all(delay.flush_at(self.now));
                    write::status(&mut self.out, Status::Ok, noreply);
                } else {
                    write::refusal(&mut self.out, Refusal::FlushNotAllowed, noreply);
                }
            }
            Command::CacheMemlimit { noreply, .. } => {
                write::refusal(&mut self.out, Refusal::MemlimitFixed, noreply);
            }
            Command::Stats { argument, .. } => {
                stats::write(&self.shared, &mut self.out, argument);
            }
            Command::Shutdown { mode } => return Ok(self.shutdown(mode)),
            Command::LruCrawler(crawler) => self.crawl(crawler).await?,
            // Carried out by the caller.
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

    fn shutdown(&mut self, mode: ShutdownMode) -> Flow {
        if !self.shared.config.server.enable_shutdown {
            write::refusal(&mut self.out, Refusal::ShutdownNotEnabled, false);
            return Flow::Continue;
        }
        if mode == ShutdownMode::Invalid {
            write::refusal(&mut self.out, Refusal::InvalidShutdownMode, false);
            return Flow::Continue;
        }
        self.shared.ask_shutdown();
        Flow::Close
    }

    async fn crawl(&mut self, command: CrawlerCommand<'_>) -> io::Result<()> {
        match command {
            CrawlerCommand::Metadump(scope) => dump::metadump(self, scope).await,
            CrawlerCommand::Mgdump(scope) => dump::mgdump(self, scope).await,
            // Expired items leave by themselves: there is no crawler to steer.
            CrawlerCommand::Enable
            | CrawlerCommand::Disable
            | CrawlerCommand::Sleep(_)
            | CrawlerCommand::ToCrawl(_)
            | CrawlerCommand::Crawl(_) => {
                write::status(&mut self.out, Status::Ok, false);
                Ok(())
            }
        }
    }

    /// Waits for earlier reads of a key that is about to be written.
    pub(crate) async fn before_write<'i>(
        &mut self,
        key: Key<'_>,
        holes: &mut Vec<Hole<'i>>,
    ) -> io::Result<()> {
        if holes.iter().any(|hole| hole.concerns(key)) {
            self.fill(holes).await?;
        }
        Ok(())
    }

    /// Answers a write that the cache refused.
    pub(crate) fn refuse(&mut self, error: CacheError, quiet: bool) {
        let refusal = match error {
            CacheError::TooLarge => {
                self.counters.store_too_large.hit();
                Refusal::TooLarge
            }
            CacheError::OutOfMemory => {
                self.counters.store_no_memory.hit();
                Refusal::OutOfMemoryStoring
            }
        };
        write::refusal(&mut self.out, refusal, quiet);
    }
}
