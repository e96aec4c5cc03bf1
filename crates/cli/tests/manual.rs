//! Man pages and completions, as the program itself writes them.

mod support;

#[test]
fn every_command_has_a_page() {
    let folder = tempfile::tempdir().unwrap();
    let output = support::run(folder.path(), &["man", "--dir", "deep/man1"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let pages = folder.path().join("deep/man1");
    for page in ["stallscope.1", "stallscope-compare.1", "stallscope-scan.1"] {
        let text = std::fs::read_to_string(pages.join(page)).unwrap();
        assert!(text.contains(".TH"), "{page}");
    }
    assert!(!pages.join("stallscope-probe-wide.1").exists(), "a hidden command");
    let printed = support::run(folder.path(), &["man"]).stdout;
    assert!(printed == std::fs::read(pages.join("stallscope.1")).unwrap());
}

/// Each script is read by its shell, where that is here.
#[test]
fn completions_are_scripts_of_their_shell() {
    let folder = tempfile::tempdir().unwrap();
    for (shell, check) in [("bash", "-n"), ("zsh", "-n"), ("fish", "--no-execute")] {
        let output = support::run(folder.path(), &["completions", shell]);
        let script = String::from_utf8_lossy(&output.stdout).into_owned();
        for part in ["compare", "prepare", "source-root"] {
            assert!(output.status.success() && script.contains(part), "{shell}: {part}");
        }
        assert!(!script.contains("\\u{"), "{shell}: something was escaped on the way");
        std::fs::write(folder.path().join("script"), &script).unwrap();
        let read = std::process::Command::new(shell)
            .arg(check)
            .arg("script")
            .current_dir(folder.path())
            .output();
        if let Ok(read) = read {
            assert!(read.status.success(), "{shell}: {}", String::from_utf8_lossy(&read.stderr));
        }
    }
    let output = support::run(folder.path(), &["completions", "tcsh"]);
    assert_eq!(output.status.code(), Some(2));
}

/// A full disk, or a file that cannot be written: help that nobody has seen is no success.
#[test]
fn help_that_cannot_be_written_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    for args in [&["--help"][..], &["-h"], &["--version"], &["trace", "--help"], &["help", "scan"]]
    {
        let output = support::run(folder.path(), args);
        assert!(output.status.success() && !output.stdout.is_empty(), "{args:?}");
        let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
        let output = support::stallscope(folder.path(), args).stdout(full).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {said}");
        assert!(said.contains("cannot write to standard output"), "{args:?}: {said}");
    }
}
