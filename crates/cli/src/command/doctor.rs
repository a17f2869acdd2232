//! `doctor`: is this coordinator fit to be trusted? Each finding says what to change.

use leasehold::{
    blocking::block_on,
    doctor::{self, Finding, Report, Verdict},
};

use crate::{args::Doctor, exit::Exit, failure::Failure, settings::Settings, view::DoctorLine};

pub(crate) fn run(args: &Doctor, settings: &Settings) -> Result<Exit, Failure> {
    let report = block_on(doctor::examine(&settings.url, &settings.namespace))?;
    let unfit = if args.strict { Verdict::Warning } else { Verdict::Fault };
    let fit = report.worst() < unfit;
    let shown = |finding: &&Finding| !settings.output.is_quiet() || finding.verdict >= unfit;
    let findings: Vec<&Finding> = report.findings.iter().filter(shown).collect();
    settings.output.result(&DoctorLine::new(&settings.namespace, &report, fit), || {
        let mut lines = describe(&findings);
        if !settings.output.is_quiet() {
            lines.push(conclusion(&report, fit));
        }
        lines
    })?;
    Ok(if fit { Exit::Done } else { Exit::Unfit })
}

fn describe(findings: &[&Finding]) -> Vec<String> {
    let width = findings.iter().map(|finding| finding.subject.len()).max().unwrap_or(0);
    let mut lines = Vec::new();
    for finding in findings {
        let Finding { subject, fact, verdict, touches, cure } = finding;
        lines.push(format!("{:7}  {subject:width$}  {fact}", verdict.word()));
        if let Some(cure) = cure {
            lines.push(format!("{:7}  {:width$}  touches {touches}; {cure}", "", ""));
        }
    }
    lines
}

fn conclusion(report: &Report, fit: bool) -> String {
    let count = |verdict| report.findings.iter().filter(|finding| finding.verdict == verdict).count();
    let (faults, warnings) = (count(Verdict::Fault), count(Verdict::Warning));
    let word = if fit { "fit" } else { "not fit to be trusted" };
    let some = |count, one, many| if count == 1 { format!("1 {one}") } else { format!("{count} {many}") };
    format!(
        "{}: {word} ({}, {})",
        report.place,
        some(faults, "fault", "faults"),
        some(warnings, "warning", "warnings")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_finding_is_told_with_what_it_touches_and_its_cure() {
        let findings = [
            Finding::fine("file", "tokens", "/x/leases.db"),
            Finding::new(Verdict::Fault, "file system", "windows", "nfs", "use a local disk"),
        ];
        let lines = describe(&findings.iter().collect::<Vec<_>>());
        assert_eq!(
            lines,
            [
                "fine     file         /x/leases.db",
                "fault    file system  nfs",
                "                      touches windows; use a local disk",
            ]
        );
        let report = Report { place: "sqlite:/x".to_owned(), findings: findings.to_vec() };
        assert_eq!(conclusion(&report, false), "sqlite:/x: not fit to be trusted (1 fault, 0 warnings)");
    }
}
