//! The decoders, each with a place of its own in this program's code, and
//! what `scan` says about that place.

use index_codec::variants::{Narrow, Paired, WideLoad, WideStore, decode_by_table, decode_plainly};
use index_codec::{Error, checked};
use stallscope::code::{FunctionQuery, Image};
use stallscope::hazards::{STORE_FORWARD, ScanFilter, scan};
use stallscope::machine::Design;

use crate::report::ScanOfVariant;

/// One decoder.
pub struct Decoder {
    /// Its name on the screen.
    pub name: &'static str,
    /// The way it reaches its memory of edges is `narrow`, `paired` and so on, around a decoder
    /// that is the same within a family; absent where there is nothing to compare with.
    pub family: Option<&'static str>,
    /// The functions that it is made of: parts of their names.
    functions: &'static [&'static str],
    /// Decodes.
    pub decode: fn(&[u8], &mut [u32]) -> Result<(), Error>,
}

macro_rules! decoders {
    ($($function:ident, $name:literal, $family:expr, [$($also:literal),*] = $decoder:expr;)*) => {
        $(
            /// Not inlined: `scan` looks for it by its name.
            #[inline(never)]
            fn $function(stream: &[u8], out: &mut [u32]) -> Result<(), Error> {
                $decoder(stream, out)
            }
        )*
        /// All decoders.
        pub static DECODERS: &[Decoder] = &[$(Decoder {
            name: $name,
            family: $family,
            functions: &[concat!("decoders::", stringify!($function)), $($also),*],
            decode: $function,
        }),*];
    };
}

decoders! {
    by_default, "default", None, ["index_codec::fast::decode_triangles"] =
        index_codec::decode_triangles::<u32>;
    with_checks, "checked", None, ["index_codec::checked::"] = checked::decode_triangles::<u32>;
    ring_narrow, "ring, narrow", Some("ring"), [] = decode_plainly::<Narrow, u32>;
    ring_paired, "ring, paired", Some("ring"), [] = decode_plainly::<Paired, u32>;
    ring_wide_load, "ring, wide load", Some("ring"), [] = decode_plainly::<WideLoad, u32>;
    ring_wide_store, "ring, wide store", Some("ring"), [] = decode_plainly::<WideStore, u32>;
    table_narrow, "table, narrow", Some("table"), [] = decode_by_table::<Narrow, u32>;
    table_paired, "table, paired", Some("table"), [] = decode_by_table::<Paired, u32>;
    table_wide_load, "table, wide load", Some("table"), [] = decode_by_table::<WideLoad, u32>;
    table_wide_store, "table, wide store", Some("table"), [] = decode_by_table::<WideStore, u32>;
}

/// The decoder of the same family that writes and reads edges whole.
pub fn paired_of(decoder: &Decoder) -> Option<usize> {
    let family = decoder.family?;
    DECODERS.iter().position(|d| d.family == Some(family) && d.name.ends_with("paired"))
}

/// What `scan` finds in each decoder, in their order. This very program is looked at.
pub fn scan_all(profile: &Design) -> Vec<ScanOfVariant> {
    let image = std::env::current_exe().map_err(|e| e.to_string());
    let image = image.and_then(|path| Image::open(&path).map_err(|e| e.to_string()));
    DECODERS.iter().map(|decoder| scan_one(image.as_ref(), decoder, profile)).collect()
}

fn scan_one(image: Result<&Image, &String>, decoder: &Decoder, profile: &Design) -> ScanOfVariant {
    let image = match image {
        Ok(image) => image,
        Err(cause) => return ScanOfVariant::NotLooked { cause: cause.clone() },
    };
    let (mut functions, mut findings) = (0, Vec::new());
    for name in decoder.functions {
        let filter = ScanFilter {
            function: Some(FunctionQuery::new(name)),
            rules: vec![&STORE_FORWARD],
            ..ScanFilter::default()
        };
        let report = scan(image, &filter, profile, None);
        functions += report.functions;
        // What a call does once is not what a decoder takes for its triangles.
        findings.extend(report.findings.into_iter().filter(|finding| finding.loop_depth > 0));
    }
    if functions == 0 {
        let cause = "this program has no symbols left, so the decoder cannot be found in it";
        return ScanOfVariant::NotLooked { cause: cause.to_owned() };
    }
    ScanOfVariant::Looked { functions, findings }
}
