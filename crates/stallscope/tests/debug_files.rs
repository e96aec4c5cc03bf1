//! Debug information in other files: whose is it? Real compilers, two builds of one program.

use std::path::Path;
use std::process::Command;

use stallscope::code::{DebugInfo, Image};

fn shell(folder: &Path, script: &str) {
    let status = Command::new("sh").arg("-ec").arg(script).current_dir(folder).status().unwrap();
    assert!(status.success(), "{script}");
}

/// Whether any function of the program has a line, and which files were refused.
fn has_lines(program: &Path) -> (bool, String) {
    let image = Image::open(program).unwrap();
    let debug = DebugInfo::of(&image);
    let has = image.functions().iter().any(|f| !debug.frames(f.start).is_empty());
    (has, debug.refused().join("\n"))
}

/// Two builds of one program, their debug information in files of the same name.
#[test]
fn a_debug_file_is_believed_by_what_it_is_and_not_by_its_name() {
    let folder = tempfile::tempdir().unwrap();
    let build = |id: &str, body: &str| {
        shell(
            folder.path(),
            &format!(
                "printf '{body}' > p.c; gcc -g -O1 {id} p.c -o p; \
                 objcopy --only-keep-debug p p.debug; strip -g p; \
                 objcopy --add-gnu-debuglink=p.debug p"
            ),
        );
    };
    for (id, why) in [("-Wl,--build-id=sha1", "build id"), ("-Wl,--build-id=none", "checksum")] {
        build(id, "int main(void) {\\n\\n return 7; }");
        shell(folder.path(), "cp p.debug other.debug");
        build(id, "int main(int n, char **v) { return n; }");
        let program = folder.path().join("p");
        assert_eq!(has_lines(&program), (true, String::new()), "{id}: its own file");
        shell(folder.path(), "cp other.debug p.debug");
        let (has, refused) = has_lines(&program);
        assert!(!has, "{id}: another build's file under the same name");
        assert!(refused.contains("p.debug is not used") && refused.contains(why), "{refused}");
    }
}

#[test]
fn a_split_file_is_believed_by_its_id() {
    let folder = tempfile::tempdir().unwrap();
    let build = |body: &str| {
        let script =
            format!("printf '{body}' > p.c; gcc -g -O1 -gsplit-dwarf -c p.c; gcc p.o -o p");
        shell(folder.path(), &script);
    };
    let named = |program: &Path| {
        let image = Image::open(program).unwrap();
        let debug = DebugInfo::of(&image);
        let mut frames = image.functions().iter().flat_map(|f| debug.frames(f.start));
        (frames.any(|l| l.function.is_some()), debug.refused().join("\n"))
    };
    build("int f(int a) { return a; } int main(void) { return 7; }");
    shell(folder.path(), "cp p.dwo other.dwo");
    build("int g(int a) { return a + 1; } int main(int n, char **v) { return n; }");
    let program = folder.path().join("p");
    assert_eq!(named(&program), (true, String::new()), "its own split file");
    shell(folder.path(), "cp other.dwo p.dwo");
    let (has, refused) = named(&program);
    assert!(!has, "another build's split file under the same name");
    assert!(refused.contains("p.dwo is not used") && refused.contains("DWO id"), "{refused}");
}
