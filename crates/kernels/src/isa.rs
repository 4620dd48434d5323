//! The instruction sets that kernels are compiled for.

use std::sync::OnceLock;

/// An instruction set, from the plainest to the widest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Isa {
    /// What every machine of the target has.
    Portable,
    /// AVX2 with FMA and F16C.
    Avx2,
    /// AVX-512 (F, BW, DQ, VL), without VNNI.
    Avx512,
    /// AVX-512 with VNNI.
    Vnni,
    /// AVX-512 with VNNI, and AMX with bf16 and int8, which products of many rows use.
    Amx,
}

impl Isa {
    /// The widest that this machine has.
    #[must_use]
    pub fn detected() -> Self {
        static DETECTED: OnceLock<Isa> = OnceLock::new();
        *DETECTED.get_or_init(detect)
    }

    /// All that this machine has, the plainest first.
    #[must_use]
    pub fn available() -> Vec<Self> {
        let all = [Self::Portable, Self::Avx2, Self::Avx512, Self::Vnni, Self::Amx];
        all.into_iter().filter(|isa| *isa <= Self::detected()).collect()
    }

    /// The values of rows, in 32 bits, that stay in the second cache while panels pass by: it has 1 MiB and more where there is
    /// AVX-512, and from 256 to 512 KiB elsewhere.
    pub(crate) fn cached_values(self) -> usize {
        if self >= Self::Avx512 { 150_000 } else { 60_000 }
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

/// `$body::<S>($args)` with `S` the instruction set `$isa`, compiled with the features of that set.
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
                // SAFETY: the assertion above has made sure that the machine has the features.
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
