//! stub
/// E
#[derive(Debug, thiserror::Error)]
#[error("x")]
pub struct MeasureError;
/// M
pub fn measure() -> Result<super::CpuTable, MeasureError> {
    Ok(super::CpuTable::frozen())
}
