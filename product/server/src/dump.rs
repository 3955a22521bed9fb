//! `lru_crawler metadump`, `mgdump` and `stats cachedump`: every item, in memory and on flash.
//!
//! The dump walks the partitions and then the segments, one at a time, in parts that fill a reply, so that a dump of any
//! size holds bounded memory. An item that moves between memory and flash during the dump may appear twice, or not at
//! all.

use std::cell::Cell;
use std::io;
use std::ops::ControlFlow;
use std::sync::Arc;

use engine::format::item::ItemRef;
use engine::{DumpCursor, ItemView, MemoryCursor, Owner};
use protocol::write::{DumpedItem, cachedump_line};
use protocol::{Refusal, Status, write};

use crate::replies::{FLUSH_BYTES, FREE_REPLY_BYTES, Replies};
use crate::shared::Shared;

/// The only slab class, which stands for all.
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
        value_bytes: view.value.len(),
        client_flags: view.client_flags,
    }
}

fn dumped_item<'a>(item: &ItemRef<'a>) -> DumpedItem<'a> {
    DumpedItem {
        total_bytes: item.header.body_bytes(),
        value_bytes: item.header.value_bytes.get() as usize,
        ..dumped(&ItemView::new(*item, Owner::None))
    }
}

/// Answers `stats cachedump`: `limit` items of a class, or all with 0. All items are in the only class.
pub(crate) async fn cachedump(
    shared: &Arc<Shared>,
    replies: &mut Replies,
    class: u32,
    limit: u32,
) -> io::Result<()> {
    let most = if limit == 0 {
        usize::MAX
    } else {
        limit as usize
    };
    let classes = class.to_string();
    let classes = Some(classes.as_bytes());
    dump(shared, replies, classes, most, Status::End, cachedump_line).await
}

/// Appends a `line` for every item, for `most` items at most, and `end` after the last.
pub(crate) async fn dump(
    shared: &Arc<Shared>,
    replies: &mut Replies,
    classes: Option<&[u8]>,
    most: usize,
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
    let left = Cell::new(most);
    let add = |out: &mut Vec<u8>, item: &ItemRef<'_>| {
        let before = out.len();
        line(out, &dumped_item(item));
        left.set(left.get() - usize::from(out.len() > before));
        if left.get() > 0 && out.len() < FLUSH_BYTES {
            ControlFlow::Continue(())
        } else {
            ControlFlow::Break(())
        }
    };
    let (mut in_memory, mut on_flash) = (MemoryCursor::default(), DumpCursor::default());
    let mut more_in_memory = true;
    while left.get() > 0 {
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
