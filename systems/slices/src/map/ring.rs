//! Records on the drives: a log of segments that the drives take in turn, each written over the oldest.
//!
//! A position is a byte of the log, as if the log had no end. Segment `n` lies on drive `n` mod drives, in place `n` / drives mod
//! segments. Records of the round before are gone as soon as their segment is begun again in memory.

use std::ops::Range;
use std::sync::Arc;

use crate::encoding::map::RecordAddress;
use device::{AlignedBuf, Disk, PAGE_BYTES, SharedBuf};

use crate::drive::Drive;
use crate::error::SliceError;
use crate::map::settings::RecordShape;

/// The places of records: segments that the drives take in turn, and that are reused in their order.
pub(crate) struct RecordRing {
    disks: Vec<Arc<dyn Disk>>,
    segment_bytes: u64,
    /// Places for segments on each drive, used in turn.
    segments: u64,
    head_bytes: u64,
}

/// Pages of a drive that have been read, with the record in them.
pub(crate) struct PagesRead {
    bytes: AlignedBuf,
    within: Range<usize>,
    pub(crate) drive: usize,
    /// Byte of the drive at which the first page begins.
    pub(crate) offset: u64,
}

impl PagesRead {
    pub(crate) fn record(&self) -> &[u8] {
        &self.bytes[self.within.clone()]
    }
}

impl RecordRing {
    pub(crate) fn new(disks: Vec<Arc<dyn Disk>>, shape: &RecordShape) -> Self {
        Self {
            disks,
            segment_bytes: shape.segment_bytes.into(),
            segments: shape.segments,
            head_bytes: shape.head_bytes,
        }
    }

    pub(crate) fn segment_bytes(&self) -> usize {
        self.segment_bytes as usize
    }

    /// Returns the number of segments after which places come round again.
    pub(crate) fn all_segments(&self) -> u64 {
        self.segments * self.disks.len() as u64
    }

    /// Returns the segment of a position, and the byte within it.
    pub(crate) fn segment_of(&self, position: u64) -> (u64, usize) {
        let within = position % self.segment_bytes;
        (position / self.segment_bytes, within as usize)
    }

    /// Returns the first position of a segment.
    pub(crate) fn start_of(&self, segment: u64) -> u64 {
        segment * self.segment_bytes
    }

    /// Returns the first position that has not been overwritten, if `newest` is the newest segment.
    pub(crate) fn tail(&self, newest: u64) -> u64 {
        self.start_of((newest + 1).saturating_sub(self.all_segments()))
    }

    fn place(&self, segment: u64) -> (usize, u64) {
        let drives = self.disks.len() as u64;
        let place = segment / drives % self.segments;
        let offset = self.head_bytes + place * self.segment_bytes;
        ((segment % drives) as usize, offset)
    }

    /// Writes pages of a segment, from its byte `from` on, and syncs them.
    pub(crate) async fn write(
        &self,
        drives: &[Drive],
        segment: u64,
        from: usize,
        pages: &Arc<AlignedBuf>,
    ) -> Result<(), SliceError> {
        let (number, offset) = self.place(segment);
        let (disk, drive) = (&self.disks[number], &drives[number]);
        let at = offset + from as u64;
        let data = SharedBuf::new(Arc::clone(pages), 0..pages.len());
        drive.write_beside(&**disk, at, data).await
    }

    /// Reads `len` bytes of the place of a segment, which may hold another segment, from its byte `from` on: whole pages.
    pub(crate) async fn read(
        &self,
        drives: &[Drive],
        segment: u64,
        from: usize,
        len: usize,
    ) -> Result<AlignedBuf, SliceError> {
        let (number, offset) = self.place(segment);
        let offset = offset + from as u64;
        drives[number]
            .read_beside(&self.disks[number], offset, len)
            .await
    }

    /// Reads the pages of a record. Returns `None` for an address that no record has.
    pub(crate) async fn read_record(
        &self,
        drives: &[Drive],
        address: RecordAddress,
    ) -> Result<Option<PagesRead>, SliceError> {
        let (segment, within) = self.segment_of(address.position);
        let end = within + address.bytes;
        if address.bytes == 0 || end > self.segment_bytes() {
            return Ok(None);
        }
        let first = within / PAGE_BYTES * PAGE_BYTES;
        let len = end.next_multiple_of(PAGE_BYTES) - first;
        let (drive, offset) = self.place(segment);
        Ok(Some(PagesRead {
            bytes: self.read(drives, segment, first, len).await?,
            within: within - first..end - first,
            drive,
            offset: offset + first as u64,
        }))
    }
}
