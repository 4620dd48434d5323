//! The instruction sets that kernels are compiled for.

use std::{fmt, str::FromStr, sync::OnceLock};

/// An instruction set, from the simplest to the widest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Isa {
    /// The baseline of the target.
    Portable,
    /// AVX2 with FMA and F16C.
    Avx2,
    /// AVX-512 (F, BW, DQ, VL), without VNNI.
    Avx512,
    /// AVX-512 with VNNI.
    Vnni,
    /// AVX-512 with VNNI, and AMX with bf16 and int8 for products of many rows.
    Amx,
}

/// The result of [`Isa::detected`] from its first call on.
static CHOSEN: OnceLock<Isa> = OnceLock::new();

impl Isa {
    const ALL: [Self; 5] = [Self::Portable, Self::Avx2, Self::Avx512, Self::Vnni, Self::Amx];

    /// The widest set of this machine, or that of [`Isa::limit`].
    #[must_use]
    pub fn detected() -> Self {
        *CHOSEN.get_or_init(detect)
    }

    /// Limits this process to `isa`, so that different machines round equally.
    ///
    /// Returns the set in use from now on. It differs if the machine lacks `isa`, or if [`Isa::detected`] was
    /// called before.
    pub fn limit(isa: Self) -> Self {
        *CHOSEN.get_or_init(|| detect().min(isa))
    }

    /// All sets of this machine, the simplest first.
    #[must_use]
    pub fn available() -> Vec<Self> {
        Self::ALL.into_iter().filter(|isa| *isa <= Self::detected()).collect()
    }

    /// The number of 32-bit values in rows that stay in the L2 cache while panels are streamed. The cache has
    /// at least 1 MiB with AVX-512, otherwise 256 to 512 KiB.
    pub(crate) fn cached_values(self) -> usize {
        if self >= Self::Avx512 { 150_000 } else { 60_000 }
    }
}

impl fmt::Display for Isa {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Portable => "portable",
            Self::Avx2 => "avx2",
            Self::Avx512 => "avx512",
            Self::Vnni => "vnni",
            Self::Amx => "amx",
        })
    }
}

impl FromStr for Isa {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let known = Self::ALL.map(|isa| isa.to_string());
        let found = Self::ALL.into_iter().find(|isa| isa.to_string() == name);
        found.ok_or_else(|| format!("expected one of {}", known.join(", ")))
    }
}

#[cfg(target_arch = "x86_64")]
fn detect() -> Isa {
    let avx2 = is_x86_feature_detected!("avx2")
        && is_x86_feature_detected!("fma")
        && is_x86_feature_detected!("f16c");
    let avx512 = avx2
        && is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512dq")
        && is_x86_feature_detected!("avx512vl");
    let vnni = avx512 && is_x86_feature_detected!("avx512vnni");
    match (vnni && crate::amx::is_available(), vnni, avx512, avx2) {
        (true, ..) => Isa::Amx,
        (_, true, ..) => Isa::Vnni,
        (_, _, true, _) => Isa::Avx512,
        (.., true) => Isa::Avx2,
        _ => Isa::Portable,
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn detect() -> Isa {
    Isa::Portable
}

/// Calls `$body::<S>($args)` with `S` for the instruction set `$isa`, compiled with its features.
///
/// `$body` must be `#[inline(always)]`, or its code is compiled without the features.
macro_rules! dispatch {
    ($isa:expr, $body:ident($($name:ident: $type:ty),* $(,)?) $(-> $result:ty)?) => {{
        #[cfg(target_arch = "x86_64")]
        {
            #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
            fn vnni($($name: $type),*) $(-> $result)? {
                $body::<$crate::simd::Vnni>($($name),*)
            }
            #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")]
            fn avx512($($name: $type),*) $(-> $result)? {
                $body::<$crate::simd::Avx512>($($name),*)
            }
            #[target_feature(enable = "avx2,fma,f16c")]
            fn avx2($($name: $type),*) $(-> $result)? {
                $body::<$crate::simd::Avx2>($($name),*)
            }
            let isa = $isa;
            assert!(isa <= $crate::Isa::detected(), "{isa:?} is not available here");
            match isa {
                // SAFETY: the assertion above has checked the features.
                $crate::Isa::Amx | $crate::Isa::Vnni => unsafe { vnni($($name),*) },
                // SAFETY: as above.
                $crate::Isa::Avx512 => unsafe { avx512($($name),*) },
                // SAFETY: as above.
                $crate::Isa::Avx2 => unsafe { avx2($($name),*) },
                $crate::Isa::Portable => $body::<$crate::simd::Portable>($($name),*),
            }
        }
        #[cfg(not(target_arch = "x86_64"))]
        {
            let _ = $isa;
            $body::<$crate::simd::Portable>($($name),*)
        }
    }};
}
pub(crate) use dispatch;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_they_are_written() {
        for isa in Isa::ALL {
            assert_eq!(isa.to_string().parse(), Ok(isa));
        }
        assert!("sse9".parse::<Isa>().unwrap_err().contains("portable, avx2"));
    }

    #[test]
    fn a_limit_after_the_first_use_changes_nothing() {
        let used = Isa::detected();
        assert_eq!(Isa::limit(Isa::Portable), used);
        assert_eq!(Isa::detected(), used);
    }
}
