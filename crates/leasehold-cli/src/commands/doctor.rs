//! `leasehold doctor`: what can be promised on a store, and what endangers it.

use leasehold::doctor::{Report, Severity, examine};

use crate::args::DoctorArgs;
use crate::connect::Opening;
use crate::exit;
use crate::failure::Failure;
use crate::output::Printer;

/// Examines the store. The status tells the worst that was found.
pub(crate) async fn doctor(args: &DoctorArgs, printer: &Printer) -> Result<u8, Failure> {
    let opening = Opening::of(&args.common.store.settings);
    let report = examine(&opening.url, &opening.access()).await?;
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
    let mut server = None;
    for finding in &report.findings {
        let named = finding.server.as_deref();
        if named != server {
            text += &format!("\n{}\n", named.unwrap_or("all servers"));
        }
        server = named;
        let (severity, check, found) = (finding.severity, finding.check, &finding.found);
        text += &format!("  {severity:8} {check:12} {found}\n");
        let below = " ".repeat(24);
        if !finding.consequence.is_empty() {
            text += &format!("{below}{}\n", finding.consequence);
        }
        if let Some(remedy) = &finding.remedy {
            text += &format!("{below}remedy: {remedy}\n");
        }
    }
    text + &format!("\nPromised here: {}\n", report.promise)
}
