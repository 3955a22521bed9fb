//! `lru_crawler metadump`, `mgdump` and `stats cachedump`: every item, in memory and on flash.
//!
//! Walked a partition and then a segment at a time, sent as it is found, so that a dump of any size
//! holds bounded memory. An item that moves between memory and flash meanwhile may be told twice, or
//! not at all.

use std::io;
use std::sync::Arc;

use engine::format::item::ItemRef;
use engine::{DumpCursor, ItemView};
use protocol::write::{DumpedItem, cachedump_line};
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
        value_bytes: view.value.len(),
        client_flags: view.client_flags,
    }
}

fn dumped_item<'a>(item: &ItemRef<'a>) -> DumpedItem<'a> {
    DumpedItem {
        total_bytes: item.header.body_bytes(),
        value_bytes: item.header.value_bytes.get() as usize,
        ..dumped(&ItemView::new(*item, None))
    }
}

/// `stats cachedump`: `limit` items of a class, or all with 0. All items are in the one class there is.
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
    let mut left = most;
    let mut show = |out: &mut Vec<u8>, item: &ItemRef<'_>| {
        let before = out.len();
        if left > 0 {
            line(out, &dumped_item(item));
            left -= usize::from(out.len() > before);
        }
        left > 0
    };
    let (mut partition, mut wants_more) = (0, true);
    while wants_more
        && engine.dump_memory(partition, |item| wants_more = show(&mut replies.out, &item))
    {
        partition += 1;
        if replies.out.len() >= FLUSH_BYTES {
            replies.send().await?;
        }
    }
    let mut cursor = DumpCursor::default();
    while wants_more {
        let out = &mut replies.out;
        let more = engine
            .dump_flash(&mut cursor, |item| wants_more = show(out, &item))
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
