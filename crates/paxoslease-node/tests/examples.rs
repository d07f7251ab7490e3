//! The examples, as users run them.

use std::process::Command;

/// Runs an example that cargo built to its end, and returns the lines that it printed.
fn run(name: &str) -> Vec<String> {
    let mut path = std::env::current_exe().expect("tests are files");
    path.pop();
    path.set_file_name("examples");
    path.push(name);
    assert!(path.exists(), "{} is missing: cargo build -p paxoslease --examples", path.display());
    let output = Command::new(path).output().expect("it was built");
    let said = String::from_utf8(output.stdout).expect("text");
    let complaints = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}{complaints}");
    said.lines().map(str::to_owned).collect()
}

/// The numbers at the end of the lines that contain `part`.
fn numbers(said: &[String], part: &str) -> Vec<u64> {
    let lines = said.iter().filter(|line| line.contains(part));
    lines.map(|line| line.split(' ').next_back().expect("words").parse().expect("ends")).collect()
}

/// The number after `key=` in a line.
fn number(line: &str, key: &str) -> u64 {
    let value = line.split(' ').find_map(|word| word.strip_prefix(key)?.strip_prefix('='));
    value.and_then(|value| value.parse().ok()).unwrap_or_else(|| panic!("no {key} in {line:?}"))
}

#[test]
fn the_next_master_takes_over_with_a_higher_fence() {
    let said = run("embedded_master");
    let fences = numbers(&said, "I am master");
    assert!(matches!(fences[..], [first, second] if first < second), "{said:#?}");
    assert!(said.last().is_some_and(|line| line.contains("took over")), "{said:#?}");
}

#[test]
fn the_job_of_a_dead_worker_runs_again_and_each_job_ends_once() {
    let said = run("worker_pool");
    assert!(said.contains(&"6 of 6 jobs are done".to_owned()), "{said:#?}");
    let about = |what: &str, job: &str| -> Vec<&String> {
        let words = format!(" {what} {job} ");
        said.iter().filter(|line| line.contains(&words)).collect()
    };
    for job in (0..6).map(|number| format!("jobs/{number}")) {
        let (mut runs, ends) = (about("runs", &job), about("finished", &job));
        runs.sort_by_key(|line| number(line, "fence"));
        let [end] = &ends[..] else { panic!("{job} was finished {} times", ends.len()) };
        let last = runs.last().expect("it ran");
        assert_eq!(number(last, "fence"), number(end, "fence"), "{said:#?}");
        match &about("dies in", &job)[..] {
            [] => assert_eq!(runs.len(), 1, "{said:#?}"),
            [death] => {
                assert_eq!(runs.len(), 2, "{said:#?}");
                assert!(number(death, "at") < number(last, "at"), "{said:#?}");
            }
            _ => panic!("only one worker dies: {said:#?}"),
        }
    }
    assert!(said.iter().any(|line| line.contains("dies in")), "{said:#?}");
}

#[test]
fn a_paused_writer_is_refused_by_its_fence() {
    let said = run("fenced_store");
    let fences = numbers(&said, "holds the lease with fence");
    assert!(matches!(fences[..], [first, second] if first < second), "{said:#?}");
    let has = |part: &str| said.iter().any(|line| line.contains(part));
    assert!(has("writer 12: is_held=true, store says written"), "{said:#?}");
    assert!(has("writer 11: is_held=false, store says refused"), "{said:#?}");
}
