//! Where the models of these tests compute.

use std::env;

use candle_core::Device;
use sporran_transformers::DeviceName;

/// The CPU, or the device that `SPORRAN_TEST_DEVICE` names (`cuda`, in a build with that feature), for models over candle.
///
/// # Panics
/// Where the device cannot be opened.
pub(crate) fn device() -> Device {
    let name = env::var("SPORRAN_TEST_DEVICE").map_or(DeviceName::Cpu, |name| name.parse().unwrap());
    name.open().unwrap()
}
