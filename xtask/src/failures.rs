//! What failed in a run of many test programs, told once more at its end: in a log of thousands of lines, the reason would
//! otherwise stand far above the verdict.

/// A program that fails may print a lot; this much of each is repeated. The whole stands above.
const KEPT_LINES: usize = 120;

/// The parts of the output between `failures:` and the closing line, as the test programs print them.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Failures {
    /// Lines of the part being read; none outside of one.
    part: Option<Vec<String>>,
    told: Vec<String>,
}

impl Failures {
    /// Takes the next line of output.
    pub(crate) fn add(&mut self, line: &str) {
        if line == "failures:" {
            // It stands twice: before what the tests printed, and before the list of their names.
            self.part.get_or_insert_default();
        } else if line.starts_with("test result: ") {
            self.close(line);
        } else if let Some(part) = &mut self.part {
            part.push(line.to_owned());
        }
    }

    fn close(&mut self, verdict: &str) {
        let Some(part) = self.part.take() else { return };
        let left_out = part.len().saturating_sub(KEPT_LINES);
        self.told.push(verdict.to_owned());
        self.told.extend(part.into_iter().take(KEPT_LINES));
        if left_out > 0 {
            self.told.push(format!("... and {left_out} more lines, above"));
        }
    }

    /// What failed, in the order in which it did; empty where nothing failed.
    pub(crate) fn told(&self) -> String {
        if self.told.is_empty() {
            return String::new();
        }
        format!("\n=== what failed\n{}\n", self.told.join("\n").trim_end())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(lines: &[&str]) -> Failures {
        let mut failures = Failures::default();
        for line in lines {
            failures.add(line);
        }
        failures
    }

    #[test]
    fn what_failed_is_told_again_and_what_passed_is_not() {
        let failures = read(&[
            "test a ... ok",
            "test result: ok. 1 passed; 0 failed; 0 ignored",
            "test b ... FAILED",
            "",
            "failures:",
            "",
            "---- b stdout ----",
            "it was 3",
            "",
            "failures:",
            "    b",
            "",
            "test result: FAILED. 0 passed; 1 failed; 0 ignored",
            "test c ... ok",
        ]);
        let told = failures.told();
        assert!(told.contains("---- b stdout ----\nit was 3"), "{told}");
        assert!(told.contains("FAILED. 0 passed; 1 failed"), "{told}");
        assert!(!told.contains("test a") && !told.contains("test c"), "{told}");
    }

    #[test]
    fn nothing_is_told_where_nothing_failed() {
        assert_eq!(read(&["test a ... ok", "test result: ok. 1 passed; 0 failed; 0 ignored"]).told(), "");
    }

    #[test]
    fn a_very_long_part_is_cut_and_says_so() {
        let mut lines = vec!["failures:"];
        lines.extend(vec!["a line"; KEPT_LINES + 7]);
        lines.push("test result: FAILED. 0 passed; 1 failed; 0 ignored");
        assert!(read(&lines).told().contains("... and 7 more lines, above"));
    }
}
