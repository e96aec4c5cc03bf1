//! The help texts and the short complaints, as transcripts in `cmd/`. `make bless` rewrites them.

#[test]
fn transcripts() {
    // What this machine's probes have found before must not show in what is expected.
    trycmd::TestCases::new().env("XDG_CACHE_HOME", "no-cache").case("tests/cmd/*.trycmd");
}
