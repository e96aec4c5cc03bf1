//! What is asked: one way to copy or fill so many bytes, alone, in a chain, or beside one.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How bytes are moved or set.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Method {
    /// `rep movsb` or `rep stosb`.
    RepBytes,
    /// `rep movsq` or `rep stosq`.
    RepQuads,
    /// Moves of 8 bytes through a general register, 32 bytes per turn of a loop.
    Moves8,
    /// Moves of 16 bytes.
    Sse,
    /// Moves of 32 bytes.
    Avx2,
    /// Moves of 64 bytes; runs in a child process.
    Avx512,
    /// `memcpy` or `memset` of the C library that this program runs with.
    Libc,
}

/// Copy or fill.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Job {
    /// From one buffer to another.
    Copy,
    /// One value everywhere.
    Fill,
}

/// What runs beside it.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Form {
    /// One after the other, nothing else to do.
    Throughput,
    /// The next address depends on the first 8 bytes of the destination.
    DependentFirst,
    /// The next address depends on the last 8 bytes of the destination.
    DependentLast,
    /// In the middle of a chain of multiplications that takes 300 cycles by itself.
    Shadow,
    /// The same question again: two equal cells must agree.
    Placebo,
}

/// One question. With 0 bytes in the shadow it is the chain alone.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
pub struct Case {
    /// Copy or fill.
    pub job: Job,
    /// Instruction that moves or sets the bytes.
    pub method: Method,
    /// What runs beside it.
    pub form: Form,
    /// How many bytes; a multiple of 8.
    pub bytes: u32,
}

/// Sizes asked, bytes.
pub const SIZES: &[u32] =
    &[8, 16, 24, 32, 48, 64, 96, 128, 168, 192, 256, 384, 512, 768, 1024, 2048, 4096];

/// The chain alone.
pub const CHAIN: Case =
    Case { job: Job::Copy, method: Method::Moves8, form: Form::Shadow, bytes: 0 };

/// Asked twice: as itself and as a placebo.
pub const TWICE: Case =
    Case { job: Job::Copy, method: Method::Moves8, form: Form::Throughput, bytes: 256 };

impl Case {
    /// A cell of the throughput table.
    pub fn alone(job: Job, method: Method, bytes: u32) -> Self {
        Self { job, method, form: Form::Throughput, bytes }
    }

    /// The same case in another form.
    #[must_use]
    pub fn in_form(self, form: Form) -> Self {
        Self { form, ..self }
    }

    /// K: so many repetitions take about 2 us on a slow method.
    pub fn repetitions(self) -> u64 {
        let about = match self.form {
            Form::Shadow => 300,
            _ => u64::from(self.bytes) / 8 + 16,
        };
        (8_000 / about).clamp(16, 512)
    }
}

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::RepBytes => "rep movsb",
            Self::RepQuads => "rep movsq",
            Self::Moves8 => "8-byte moves",
            Self::Sse => "SSE",
            Self::Avx2 => "AVX2",
            Self::Avx512 => "AVX-512",
            Self::Libc => "libc",
        })
    }
}

impl Method {
    /// Its name for one of the two jobs.
    #[must_use]
    pub fn name(self, job: Job) -> String {
        match job {
            Job::Copy => self.to_string(),
            Job::Fill => self.to_string().replace("movs", "stos"),
        }
    }
}

/// All cases that this process measures; `avx2` says whether 32-byte moves exist.
pub fn all_cases(avx2: bool) -> Vec<Case> {
    use Method::{Avx2, Libc, Moves8, RepBytes, RepQuads, Sse};
    let mut cases = vec![CHAIN, TWICE.in_form(Form::Placebo)];
    let methods = [RepBytes, RepQuads, Moves8, Sse, Avx2, Libc];
    for job in [Job::Copy, Job::Fill] {
        for method in methods.into_iter().filter(|m| avx2 || *m != Avx2) {
            let forms: &[Form] = match (job, method) {
                (_, Libc) => &[Form::Throughput],
                (Job::Fill, _) => &[Form::Throughput, Form::Shadow],
                (Job::Copy, _) => {
                    &[Form::Throughput, Form::DependentFirst, Form::DependentLast, Form::Shadow]
                }
            };
            for &form in forms {
                // More than 512 bytes do not fit into the shadow of 300 cycles.
                let fits = |b: &&u32| form != Form::Shadow || **b <= 512;
                let sizes = SIZES.iter().filter(fits);
                cases.extend(sizes.map(|&bytes| Case { job, method, form, bytes }));
            }
        }
    }
    cases
}

/// Cases for a child process: 512-bit vectors.
pub fn wide_cases() -> Vec<Case> {
    let jobs = [Job::Copy, Job::Fill];
    let sizes = |job| SIZES.iter().map(move |&b| Case::alone(job, Method::Avx512, b));
    jobs.into_iter().flat_map(sizes).collect()
}
