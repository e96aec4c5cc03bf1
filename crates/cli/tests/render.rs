//! `stallscope render` and `--html` from outside: the page of a kept result is the page that the command wrote, and what
//! cannot be drawn has a sentence, exit code 2 and no file.

mod support;

use std::fs;
use std::path::Path;

use support::{refused, run};

fn fine(folder: &Path, args: &[&str]) {
    let output = run(folder, args);
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn a_kept_result_gives_the_page_that_the_command_wrote() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    let read = |name: &str| fs::read_to_string(here.join(name)).unwrap();
    let commands: [&[&str]; 3] = [
        &["compare", "--pairs", "2", "true", "sh -c 'true secret'"],
        &["explain", "--pairs", "1", "/bin/true", "/bin/false", "--ignore-failure"],
        &["list"],
    ];
    for command in commands {
        fine(here, &[command, &["-q", "--json", "r.json", "--html", "a.html"]].concat());
        fine(here, &["render", "r.json", "--html", "b.html"]);
        assert_eq!(read("a.html"), read("b.html"), "{command:?}");
        assert!(read("a.html").starts_with("<!DOCTYPE html>"));
        let drawing = ["render", "r.json", "--svg", "a.svg"];
        if command == ["list"] {
            refused(here, &drawing, &["a result of the kind `list` has no chart", "it has none"]);
        } else {
            fine(here, &drawing);
            fine(here, &["render", "r.json", "--svg", "runs.svg", "--chart", "runs"]);
            assert!(
                read("a.svg").contains("pairs: ") && read("runs.svg").contains("runs in order")
            );
            refused(
                here,
                &["render", "r.json", "--svg", "b.svg", "--chart", "flame"],
                &["has no chart `flame`; it has `pairs`, `runs`"],
            );
        }
    }
    fine(
        here,
        &["-q", "compare", "--pairs", "2", "true", "sh -c 'true secret'", "--json", "r.json"],
    );
    fine(here, &["render", "r.json", "--html", "told.html"]);
    fine(here, &["render", "r.json", "--html", "redacted.html", "--redact-args"]);
    assert!(read("told.html").contains("secret") && !read("redacted.html").contains("secret"));
}

#[test]
fn what_cannot_be_drawn_has_its_sentence_and_leaves_the_old_page() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    fs::write(here.join("text"), "hello\n").unwrap();
    fs::write(here.join("foreign.json"), r#"{"results": [1, 2]}"#).unwrap();
    fs::write(here.join("cut.json"), r#"{"format": "stallscope", "version": 1, "ki"#).unwrap();
    let newer = r#"{"format": "stallscope", "version": 99, "kind": "comparison", "result": {}}"#;
    fs::write(here.join("newer.json"), newer).unwrap();
    fs::write(here.join("empty.json"), newer.replace("99", "1")).unwrap();
    fs::File::create(here.join("huge.json")).unwrap().set_len(65 << 20).unwrap();
    fs::write(here.join("bytes.json"), [0xff, 0xfe]).unwrap();
    fs::write(here.join("old.html"), "old").unwrap();
    for (file, part) in [
        ("none.json", "cannot draw none.json: No such file"),
        (".", "directory"),
        ("/dev/zero", "not a regular file"),
        ("text", "no JSON"),
        ("cut.json", "no JSON"),
        ("foreign.json", "no result of stallscope"),
        ("newer.json", "newer stallscope"),
        ("empty.json", "no `comparison` as this stallscope writes it: missing field"),
        ("huge.json", "larger than the 64 MiB"),
        ("bytes.json", "not text"),
    ] {
        refused(here, &["render", file, "--html", "old.html"], &[part]);
        assert_eq!(fs::read_to_string(here.join("old.html")).unwrap(), "old", "{file}");
    }
    refused(here, &["render", "foreign.json"], &["--html FILE"]);
    refused(here, &["render", "foreign.json", "--html", "-"], &["name one"]);
    refused(here, &["render", "foreign.json", "--svg", "-"], &["name one"]);
    refused(here, &["render", "foreign.json", "--svg", "no/such.svg"], &["--svg", "no directory"]);
    refused(here, &["render", "foreign.json", "--chart", "runs"], &["--svg"]);
    refused(
        here,
        &["compare", "true", "true", "--html", "no/such/x.html"],
        &["--html", "no directory no/such"],
    );
    assert_eq!(fs::read_dir(here).unwrap().count(), 8, "a file was left behind");
}

#[test]
fn a_page_is_shown_by_the_browser_that_is_named_and_is_there_without_one() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    let browser = here.join("browser");
    fs::write(&browser, "#!/bin/sh\ncp \"$1\" seen.html\n").unwrap();
    fs::set_permissions(&browser, fs::Permissions::from_mode(0o755)).unwrap();
    let open = |browser: &Path| {
        let args = ["list", "-q", "--html", "page.html", "--open"];
        support::stallscope(here, &args).env("BROWSER", browser).output().unwrap()
    };
    assert!(open(&browser).status.success());
    assert_eq!(
        fs::read(here.join("seen.html")).unwrap(),
        fs::read(here.join("page.html")).unwrap()
    );
    let output = open(Path::new("/nowhere/browser"));
    assert!(output.status.success());
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("BROWSER") && said.contains("page.html"), "{said}");
}
