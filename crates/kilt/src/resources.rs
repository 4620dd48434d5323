//! The memory of the process, for estimates.

/// The memory of this process in bytes, with the pages of mapped files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memory {
    /// In use now.
    pub now: u64,
    /// The most so far.
    pub most: u64,
}

/// The memory of this process, where the system tells it: on Linux.
#[must_use]
pub fn memory() -> Option<Memory> {
    of_status(&std::fs::read_to_string("/proc/self/status").ok()?)
}

fn of_status(status: &str) -> Option<Memory> {
    let field = |name: &str| -> Option<u64> {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        Some(line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? * 1024)
    };
    Some(Memory { now: field("VmRSS:")?, most: field("VmHWM:")? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_read_from_the_status() {
        let status = "Name:\tx\nVmHWM:\t    2048 kB\nVmRSS:\t    1024 kB\nThreads:\t1\n";
        assert_eq!(of_status(status), Some(Memory { now: 1 << 20, most: 2 << 20 }));
        assert_eq!(of_status("VmRSS:\t1 kB\n"), None);
    }
}
