//! `leasehold doctor`: what can be promised on a store, and what endangers it.

use std::fmt::Write;

use leasehold::doctor::{Finding, Report, Severity, examine};

use crate::cli::DoctorArgs;
use crate::connect::Opening;
use crate::exit;
use crate::failure::Failure;
use crate::output::Printer;

/// Examines the store. The status tells the worst that was found.
pub(crate) async fn doctor(args: &DoctorArgs, printer: &Printer) -> Result<u8, Failure> {
    let Opening { url, access } = Opening::of(&args.common.store)?;
    let report = examine(&url, &access).await?;
    printer.show(&report, || text(&report))?;
    Ok(match report.worst() {
        Severity::Fine | Severity::Note => exit::OK,
        Severity::Warning => exit::ENDANGERED,
        // What a later version calls worse is no better.
        _ => exit::UNSAFE,
    })
}

fn text(report: &Report) -> String {
    let mut text = format!("{}\n", report.store);
    let mut server: Option<&str> = None;
    for finding in &report.findings {
        let named = finding.server.as_deref();
        if named != server
            && let Some(name) = named
        {
            // Writing to a string cannot fail.
            write!(text, "\n{name}\n").ok();
        }
        server = named;
        text.push_str(&lines(finding));
    }
    write!(text, "\nPromised here: {}\n", report.promise).ok();
    text
}

fn lines(finding: &Finding) -> String {
    let Finding {
        severity,
        check,
        found,
        ..
    } = finding;
    let mut lines = format!("  {severity:8} {check:12} {found}\n");
    let below = " ".repeat(24);
    if !finding.consequence.is_empty() {
        writeln!(lines, "{below}{}", finding.consequence).ok();
    }
    if let Some(remedy) = &finding.remedy {
        writeln!(lines, "{below}remedy: {remedy}").ok();
    }
    lines
}
