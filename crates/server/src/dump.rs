//! `lru_crawler metadump` and `mgdump`: every item, in memory and on flash.
//!
//! Walked a partition and then a segment at a time, sent as it is found, so that a dump of any size
//! holds bounded memory. An item that moves between memory and flash meanwhile may be told twice, or
//! not at all.

use std::io;
use std::sync::Arc;

use engine::format::item::ItemRef;
use engine::{DumpCursor, ItemView};
use protocol::write::DumpedItem;
use protocol::{Refusal, Status, write};

use crate::replies::{FLUSH_BYTES, Replies};
use crate::shared::Shared;

/// The slab class that stands for all: there are none.
const CLASS: u32 = 1;

pub(crate) fn dumped<'a>(view: &ItemView<'a>) -> DumpedItem<'a> {
    DumpedItem {
        key: view.key,
        expiry: view.expiry,
        last_access: view.last_access,
        cas_unique: view.cas_unique,
        fetched: view.fetched,
        class: CLASS,
        total_bytes: engine::format::item::HEADER_BYTES + view.key.len() + view.value.len(),
        client_flags: view.client_flags,
    }
}

fn dumped_item<'a>(item: &ItemRef<'a>) -> DumpedItem<'a> {
    DumpedItem {
        total_bytes: item.header.body_bytes(),
        ..dumped(&ItemView::new(*item, None))
    }
}

/// Appends a `line` for every item, and `end` after the last.
pub(crate) async fn dump(
    shared: &Arc<Shared>,
    replies: &mut Replies,
    classes: Option<&[u8]>,
    end: Status,
    line: impl Fn(&mut Vec<u8>, &DumpedItem<'_>),
) -> io::Result<()> {
    if let Some(classes) = classes
        && !classes
            .split(|&byte| byte == b',')
            .any(|class| class == CLASS.to_string().as_bytes())
    {
        write::status(&mut replies.out, end, false);
        return Ok(());
    }
    let Some(_turn) = shared.dumping.try_acquire() else {
        write::refusal(&mut replies.out, Refusal::CrawlerBusy, false);
        return Ok(());
    };
    let engine = &shared.engine;
    let mut partition = 0;
    while engine.dump_memory(partition, |item| {
        line(&mut replies.out, &dumped_item(&item))
    }) {
        partition += 1;
        if replies.out.len() >= FLUSH_BYTES {
            replies.send().await?;
        }
    }
    let mut cursor = DumpCursor::default();
    loop {
        let out = &mut replies.out;
        let more = engine
            .dump_flash(&mut cursor, |item| line(out, &dumped_item(&item)))
            .await;
        replies.send().await?;
        if shared.is_stopping() {
            write::refusal(&mut replies.out, Refusal::Internal, false);
            return Ok(());
        }
        if !more {
            break;
        }
    }
    write::status(&mut replies.out, end, false);
    Ok(())
}
