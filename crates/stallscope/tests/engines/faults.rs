//! Faults that end a straight run of instructions early: each engine must tell what came before,
//! and not the instruction that faulted.

use stallscope::trace::engine::Ended;

use crate::agreement;
use crate::available::engines;
use crate::programs::Program;
use crate::recorder::{Step, function, record, window};

/// What the program prints.
const OUTPUT: &str = "17\n";

#[test]
fn an_instruction_that_faults_was_not_executed() {
    let program = Program::named("division", "division.c");
    let folder = tempfile::tempdir().unwrap();
    let path = program.build(folder.path());
    let mut stepped: Option<(u64, Vec<Step>)> = None;
    for engine in engines() {
        let (recording, steps) = record(engine, &path, &window(&path, 0, 1)).unwrap();
        assert_eq!(recording.ended, Ended::Length, "{}", engine.id());
        assert_eq!(recording.exit.as_ref().unwrap().stdout.tail, OUTPUT, "{}", engine.id());
        let bias = steps[0].address - function(&path, "window").0;
        if let Some((expected_bias, expected)) = &stepped {
            agreement::check(&program, &path, [(*expected_bias, expected), (bias, &steps)]);
        }
        if engine.id() == "step" {
            stepped = Some((bias, steps));
        }
    }
}
