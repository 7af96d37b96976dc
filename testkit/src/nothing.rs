//! Memory of a device in Rust that keeps nothing, for devices that compute nothing.

use ggml::driver::{DriverBuffer, Failure, TensorView};

/// Takes all writes and copies, and leaves what is read as it is.
pub struct Nothing;

impl DriverBuffer for Nothing {
    fn set(&self, _: TensorView<'_>, _: usize, _: &[u8]) -> Result<(), Failure> {
        Ok(())
    }

    fn get(&self, _: TensorView<'_>, _: usize, _: &mut [u8]) -> Result<(), Failure> {
        Ok(())
    }

    fn fill(&self, _: usize, _: usize, _: u8) -> Result<(), Failure> {
        Ok(())
    }

    fn copy(&self, _: usize, _: &Self, _: usize, _: usize) -> Result<bool, Failure> {
        Ok(true)
    }
}
