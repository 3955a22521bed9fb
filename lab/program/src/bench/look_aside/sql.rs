//! The SQL statements for each database. Names and values are parameters.

use super::backend::Kind;

pub(super) const TABLE: &str = "flowstone";

#[derive(Clone, Copy, Debug)]
pub(super) struct Statements {
    /// Runs after connecting.
    pub(super) prepare: Option<&'static str>,
    /// Runs in a database that has just been made.
    pub(super) prepare_new: Option<&'static str>,
    /// Queries the number of pages, if that identifies a new database.
    pub(super) pages: Option<&'static str>,
    /// Queries the columns of the table, one a row, as text; no row if there is no table.
    pub(super) columns: &'static str,
    /// Answer to `columns` if the table belongs to this program.
    pub(super) expected: [&'static str; 2],
    pub(super) create: &'static str,
    pub(super) get: &'static str,
    pub(super) delete: &'static str,
    /// Whether parameters are written `$1`; otherwise `?`.
    numbered: bool,
    /// Text behind the rows of a writing statement.
    overwrite: &'static str,
}

const SQLITE: Statements = Statements {
    // Writers wait for one another.
    prepare: Some("PRAGMA busy_timeout = 30000"),
    // Readers do not wait for writers. The mode stays with the file, so other files are not changed.
    prepare_new: Some("PRAGMA journal_mode = WAL"),
    pages: Some("PRAGMA page_count"),
    columns: "SELECT name || ' ' || lower(type) || CASE WHEN pk > 0 THEN ' primary key' ELSE '' END \
              FROM pragma_table_info('flowstone') ORDER BY cid",
    expected: ["name blob primary key", "value blob"],
    create: "CREATE TABLE flowstone (name BLOB NOT NULL PRIMARY KEY, value BLOB NOT NULL)",
    get: "SELECT value FROM flowstone WHERE name = ?",
    delete: "DELETE FROM flowstone WHERE name = ?",
    numbered: false,
    overwrite: " ON CONFLICT (name) DO UPDATE SET value = excluded.value",
};

const MYSQL: Statements = Statements {
    prepare: None,
    prepare_new: None,
    pages: None,
    columns: "SELECT CAST(CONCAT(column_name, ' ', data_type, IF(column_key = 'PRI', ' primary key', '')) \
              AS CHAR) FROM information_schema.columns \
              WHERE table_schema = DATABASE() AND table_name = 'flowstone' ORDER BY ordinal_position",
    expected: ["name varbinary primary key", "value longblob"],
    create: "CREATE TABLE flowstone (name VARBINARY(250) NOT NULL PRIMARY KEY, value LONGBLOB NOT NULL)",
    get: "SELECT value FROM flowstone WHERE name = ?",
    delete: "DELETE FROM flowstone WHERE name = ?",
    numbered: false,
    overwrite: " ON DUPLICATE KEY UPDATE value = VALUES(value)",
};

const POSTGRES: Statements = Statements {
    prepare: None,
    prepare_new: None,
    pages: None,
    columns: "SELECT a.attname || ' ' || format_type(a.atttypid, NULL) \
              || CASE WHEN i.indrelid IS NULL THEN '' ELSE ' primary key' END \
              FROM pg_attribute a LEFT JOIN pg_index i \
              ON i.indrelid = a.attrelid AND i.indisprimary AND a.attnum = ANY(i.indkey) \
              WHERE a.attrelid = to_regclass('flowstone') AND a.attnum > 0 AND NOT a.attisdropped \
              ORDER BY a.attnum",
    expected: ["name bytea primary key", "value bytea"],
    create: "CREATE TABLE flowstone (name BYTEA NOT NULL PRIMARY KEY, value BYTEA NOT NULL)",
    get: "SELECT value FROM flowstone WHERE name = $1",
    delete: "DELETE FROM flowstone WHERE name = $1",
    numbered: true,
    overwrite: " ON CONFLICT (name) DO UPDATE SET value = excluded.value",
};

impl Statements {
    pub(super) fn of(kind: Kind) -> Self {
        match kind {
            Kind::Sqlite => SQLITE,
            Kind::MySql => MYSQL,
            Kind::Postgres => POSTGRES,
        }
    }

    /// Returns the statement that writes `rows` rows and replaces old ones. Its parameters are name, value,
    /// name, value...
    pub(super) fn put(&self, rows: usize) -> String {
        let row = |number: usize| {
            if self.numbered {
                format!("(${}, ${})", 2 * number + 1, 2 * number + 2)
            } else {
                "(?, ?)".to_owned()
            }
        };
        let rows: Vec<String> = (0..rows).map(row).collect();
        format!(
            "INSERT INTO {TABLE} (name, value) VALUES {}{}",
            rows.join(", "),
            self.overwrite
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_written_in_each_databases_words() {
        assert_eq!(
            SQLITE.put(1),
            "INSERT INTO flowstone (name, value) VALUES (?, ?) \
             ON CONFLICT (name) DO UPDATE SET value = excluded.value"
        );
        assert_eq!(
            MYSQL.put(2),
            "INSERT INTO flowstone (name, value) VALUES (?, ?), (?, ?) \
             ON DUPLICATE KEY UPDATE value = VALUES(value)"
        );
        assert!(POSTGRES.put(2).contains("VALUES ($1, $2), ($3, $4) ON"));
    }
}
