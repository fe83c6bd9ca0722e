//! The state of adopted tables.

use relais::observe::ObserverSnapshot;

use super::page::MetricsPage;

pub(super) fn render(page: &mut MetricsPage, snapshot: &ObserverSnapshot) {
    let help = "Problems of an adopted table; 0 if it fits the configuration.";
    page.head("relais_adopted_table_problems", "gauge", help);
    for table in &snapshot.adopted {
        let labels = [("table", table.table.as_str())];
        page.line("relais_adopted_table_problems", &labels, table.problems.len());
    }
}
