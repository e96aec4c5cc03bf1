//! `scan` from outside on a program that this test compiles: what the system's C compiler and its
//! debug information must give.

mod support;

use std::fs;
use std::process::Command;

/// Two halves are written, the whole is read back: volatile, so that no compiler mends it.
const RING: &str = "
#include <stdint.h>
struct pair { uint32_t lo, hi; };
int main(void) {
    volatile struct pair ring[16];
    uint64_t x = 1;
    for (long i = 0; i < 1000; i++) {
        ring[i & 15].lo = (uint32_t)x;
        ring[i & 15].hi = (uint32_t)(x >> 32);
        x = *(volatile uint64_t *)&ring[i & 15] + 1;
    }
    return (int)x;
}";

fn scan(flags: &[&str]) -> serde_json::Value {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    fs::write(here.join("ring.c"), RING).unwrap();
    let compiled = Command::new("cc")
        .current_dir(here)
        .args(["-O2", "-g", "-o", "ring", "ring.c"])
        .args(flags)
        .status();
    assert!(compiled.unwrap().success());
    let output = support::run(here, &["scan", "--json", "-", "ring"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let findings = document["result"][0]["findings"].as_array().unwrap();
    let in_main = |f: &&serde_json::Value| f["site"]["variable"] == "ring";
    findings.iter().find(in_main).unwrap_or_else(|| panic!("{findings:#?}")).clone()
}

#[test]
fn a_load_of_two_stores_is_found_with_its_line_and_its_variable() {
    for flags in [&["-fPIE", "-pie"][..], &["-no-pie"], &["-static"]] {
        let finding = scan(flags);
        assert_eq!(finding["certainty"], "definite", "{flags:?}");
        assert_eq!(finding["site"]["access_bytes"], 8);
        assert_eq!(finding["site"]["source"][0]["line"], 10);
        let stores = finding["others"].as_array().unwrap();
        assert_eq!(stores.len(), 2, "{stores:#?}");
        assert!(stores.iter().all(|s| s["variable"] == "ring"));
    }
}
