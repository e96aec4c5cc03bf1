//! The help texts and the short complaints, as transcripts in `cmd/`. `make bless` rewrites them.

#[test]
fn transcripts() {
    trycmd::TestCases::new().case("tests/cmd/*.trycmd");
}
