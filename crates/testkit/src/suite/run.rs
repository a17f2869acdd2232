//! Runs the cases: under a test harness, or one by one for whoever wants to judge the outcomes.

use std::{
    io::Write as _,
    process::ExitCode,
    sync::{Arc, Mutex},
    time::Duration,
};

use libtest_mimic::{Arguments, Failed, Trial};

use super::{Case, Cell, Context, Engine, Failure, Matrix, cases::CASES};
use crate::lock;

/// After this long a case hangs.
pub(super) const CASE_LIMIT: Duration = Duration::from_secs(180);
/// What the names of cases begin with that crash the engine.
const CRASHES: &str = "clause_10_";
/// The case that waits out the life of a place, on engines whose clocks cannot be moved.
const WAITS: &str = "::clause_09_an_unrefreshed_place_dies";
/// Cases mostly wait: more of them than processors run at once. With three times as many, servers that start for some cases keep
/// those of others from answering for a second.
const AT_ONCE: usize = 16;

/// Runs one case on one engine.
pub async fn run_case(engine: Arc<dyn Engine>, case: &Case) -> Cell {
    let attempt = async {
        let context = Context::new(engine, case.name.starts_with(CRASHES)).await?;
        (case.run)(context.clone()).await?;
        Ok::<_, Failure>(context.passed())
    };
    match tokio::time::timeout(CASE_LIMIT, attempt).await {
        Ok(Ok(cell)) => cell,
        Ok(Err(failure)) => Cell::Failed(failure.to_string()),
        Err(_) => Cell::Failed(format!("still not done after {CASE_LIMIT:?}")),
    }
}

/// Runs these cases on one engine, all at once, on the calling thread.
///
/// # Errors
/// When no runtime can be had.
pub fn judge(engine: &Arc<dyn Engine>, cases: &[&'static Case]) -> std::io::Result<Matrix> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let local = tokio::task::LocalSet::new();
    Ok(local.block_on(&runtime, async {
        let mut running = Vec::new();
        for &case in cases {
            let engine = Arc::clone(engine);
            running.push((case, tokio::task::spawn_local(async move { run_case(engine, case).await })));
        }
        let mut matrix = Matrix::default();
        for (case, task) in running {
            let cell =
                task.await.unwrap_or_else(|error| Cell::Failed(format!("the case broke down: {error}")));
            matrix.note(engine.name(), case.name, cell);
        }
        matrix
    }))
}

/// The `main` of a test target: runs every case on every engine under the usual test arguments, named `engine::case`, and
/// prints the matrix. Fails when a case failed, and also when a case did not run although none was filtered out.
pub fn run(engines: Vec<Box<dyn Engine>>) -> ExitCode {
    let mut arguments = Arguments::from_args();
    arguments.test_threads.get_or_insert(AT_ONCE);
    let whole = arguments.filter.is_none()
        && arguments.skip.is_empty()
        && !arguments.list
        && !arguments.ignored
        && !arguments.bench;
    let matrix = Arc::new(Mutex::new(Matrix::default()));
    let runtime = match tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build() {
        Ok(runtime) => Arc::new(runtime),
        Err(error) => {
            say(&format!("no runtime: {error}"));
            return ExitCode::FAILURE;
        }
    };
    let engines: Vec<Arc<dyn Engine>> = engines.into_iter().map(Arc::from).collect();
    let mut trials = Vec::new();
    for engine in &engines {
        for case in CASES {
            let (engine, matrix, runtime) = (Arc::clone(engine), Arc::clone(&matrix), Arc::clone(&runtime));
            let name = format!("{}::{}", engine.name(), case.name);
            trials.push(Trial::test(name, move || {
                let cell = runtime.block_on(run_case(Arc::clone(&engine), case));
                lock(&matrix).note(engine.name(), case.name, cell.clone());
                match cell {
                    Cell::Failed(why) => Err(Failed::from(why)),
                    Cell::Passed | Cell::Partly(_) | Cell::Inapplicable(_) => Ok(()),
                }
            }));
        }
    }
    // They take as long as all others together: behind them nobody would have anything to do meanwhile.
    trials.sort_by_key(|trial| !trial.name().ends_with(WAITS));
    let conclusion = libtest_mimic::run(&arguments, trials);
    if !whole {
        return conclusion.exit_code();
    }
    let names: Vec<String> = engines.iter().map(|engine| engine.name().to_owned()).collect();
    let matrix = lock(&matrix);
    say(&matrix.table(&names).to_string());
    let gaps = matrix.gaps(names.iter().map(String::as_str));
    if !gaps.is_empty() || names.is_empty() {
        say(&format!(
            "did not run: {}",
            if gaps.is_empty() { "anything".to_owned() } else { gaps.join(", ") }
        ));
        return ExitCode::FAILURE;
    }
    conclusion.exit_code()
}

/// A test harness talks on stdout.
fn say(text: &str) {
    // Nobody is left to be told when stdout is gone.
    let _ = writeln!(std::io::stdout(), "{text}");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reference::Reference;

    #[test]
    fn the_reference_passes_every_case_in_full() {
        let engine: Arc<dyn Engine> = Arc::new(Reference::new());
        let cases: Vec<&'static Case> = CASES.iter().collect();
        let matrix = judge(&engine, &cases).unwrap();
        for case in CASES {
            let cell = matrix.get("reference", case.name);
            assert!(matches!(cell, Some(Cell::Passed)), "{}: {cell:?}", case.name);
        }
        assert!(matrix.gaps(["reference"]).is_empty());
    }

    #[test]
    fn a_case_that_did_not_run_is_a_gap() {
        let mut matrix = Matrix::default();
        for case in &CASES[1..] {
            matrix.note("one", case.name, Cell::Passed);
        }
        assert_eq!(matrix.gaps(["one"]), [format!("one::{}", CASES[0].name)]);
        assert_eq!(matrix.gaps(["one", "two"]).len(), 1 + CASES.len());
        let table = matrix.table(&["one".to_owned()]).to_string();
        assert_eq!((table.matches("NOT RUN").count(), table.matches("  ok").count()), (1, CASES.len() - 1));
    }

    #[test]
    fn case_names_are_unique_and_say_their_clause() {
        let mut names: Vec<_> = CASES.iter().map(|case| case.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), CASES.len());
    }
}
