//! `stallscope explain` from outside, on real programs: what it must not say. No claim about speed.

mod support;

use std::path::Path;
use std::process::Command;

fn shell(folder: &Path, script: &str) {
    let status = Command::new("sh").arg("-ec").arg(script).current_dir(folder).status().unwrap();
    assert!(status.success(), "{script}");
}

/// The same program twice, over a library that was built with optimisation and without.
const OVER_TWO_LIBRARIES: &str = r"
cat > work.c <<'END'
unsigned work(unsigned n) {
    unsigned s = 1;
    for (unsigned i = 0; i < n; i++) s += (i * 31) ^ (i >> 3);
    return s;
}
END
cat > main.c <<'END'
unsigned work(unsigned);
int main(void) { return work(20000000) == 7; }
END
mkdir before after
gcc -O2 -shared -fPIC work.c -Wl,-soname,libwork.so.1 -o before/libwork.so.1
gcc -O0 -shared -fPIC work.c -Wl,-soname,libwork.so.1 -o after/libwork.so.1
gcc -O1 main.c -Lbefore -l:libwork.so.1 -Wl,-rpath,'$ORIGIN' -o before/main
cp before/main after/main
";

#[test]
fn a_library_that_differs_is_named_and_placement_is_not() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    shell(here, OVER_TWO_LIBRARIES);
    let output = support::run(here, &["explain", "--pairs", "8", "before/main", "after/main"]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(text.contains("libwork.so"), "{text}");
    for never in ["byte-identical", "same code in both", "must differ", "placement or noise"] {
        assert!(!text.contains(never), "{never}: {text}");
    }
}
