//! SQL of the recipes, in SQLite: a transaction with a stale token changes nothing.

use rusqlite::Connection;

use super::blocks;

/// What psql does: a variable in the place of its name, and nothing after an error.
fn run(database: &Connection, text: &str, token: u64) -> rusqlite::Result<()> {
    let run = database.execute_batch(&text.replace(":token", &token.to_string()));
    if run.is_err() && !database.is_autocommit() {
        database.execute_batch("ROLLBACK")?;
    }
    run
}

#[test]
fn a_stale_token_changes_nothing() {
    for block in blocks("sql") {
        let has_token = block.text.contains(":token");
        assert!(has_token, "{}:{}", block.page, block.line);
        let database = Connection::open_in_memory().unwrap();
        run(&database, &block.text, 17).unwrap();
        run(&database, &block.text, 17).unwrap();
        run(&database, &block.text, 18).unwrap();
        database.execute_batch("DROP TABLE orders").unwrap();
        let refused = run(&database, &block.text, 17).unwrap_err().to_string();
        assert!(refused.contains("NOT NULL"), "{refused}");
        assert!(!database.table_exists(None, "orders").unwrap());
        run(&database, &block.text, 19).unwrap();
        assert!(database.table_exists(None, "orders").unwrap());
    }
}
