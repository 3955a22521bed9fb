//! `lru_crawler metadump` and `mgdump`: every item, in memory and on flash.
//!
//! Walked a partition and then a segment at a time, and these in parts that fill a reply, so that a dump of any size
//! holds bounded memory. An item that moves between memory and flash meanwhile may be told twice, or
//! not at all.

use std::io;
use std::ops::ControlFlow;
use std::sync::Arc;

use engine::format::item::ItemRef;
use engine::{DumpCursor, ItemView, MemoryCursor, Owner};
use protocol::write::DumpedItem;
use protocol::{Refusal, Status, write};

use crate::replies::{FLUSH_BYTES, FREE_REPLY_BYTES, Replies};
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
        ..dumped(&ItemView::new(*item, Owner::None))
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
    let add = |out: &mut Vec<u8>, item: &ItemRef<'_>| {
        line(out, &dumped_item(item));
        if out.len() < FLUSH_BYTES {
            ControlFlow::Continue(())
        } else {
            ControlFlow::Break(())
        }
    };
    let (mut in_memory, mut on_flash) = (MemoryCursor::default(), DumpCursor::default());
    let mut more_in_memory = true;
    loop {
        replies.reserve(FLUSH_BYTES + FREE_REPLY_BYTES).await?;
        let out = &mut replies.out;
        if more_in_memory {
            more_in_memory = engine.dump_memory(&mut in_memory, |item| add(out, &item));
        } else if !engine
            .dump_flash(&mut on_flash, |item| add(out, &item))
            .await
        {
            break;
        }
        replies.send().await?;
        if shared.is_stopping() {
            write::refusal(&mut replies.out, Refusal::Internal, false);
            return Ok(());
        }
    }
    write::status(&mut replies.out, end, false);
    Ok(())
}
