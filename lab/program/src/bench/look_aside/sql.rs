//! The statements, in the words of each database. Names and values go in as parameters.

use super::backend::Kind;

pub(super) const TABLE: &str = "flowstone";

#[derive(Clone, Copy, Debug)]
pub(super) struct Statements {
    /// After connecting.
    pub(super) prepare: Option<&'static str>,
    /// In a database that has just been made.
    pub(super) prepare_new: Option<&'static str>,
    /// How many pages the database has, where a new one can be told by that.
    pub(super) pages: Option<&'static str>,
    /// The columns of the table, one a row, in words; no row if there is no table.
    pub(super) columns: &'static str,
    /// What `columns` answers if the table is ours.
    pub(super) expected: [&'static str; 2],
    pub(super) create: &'static str,
    pub(super) get: &'static str,
    pub(super) delete: &'static str,
    /// How parameters are written: `$1`, or `?`.
    numbered: bool,
    /// What follows the rows of a statement that writes.
    overwrite: &'static str,
}

const SQLITE: Statements = Statements {
    // Writers wait for one another.
    prepare: Some("PRAGMA busy_timeout = 30000"),
    // Readers do not wait for writers. Stays with the file, so nobody else's is changed.
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

    /// Writes `rows` rows, new ones or over old ones. Its parameters are name, value, name, value...
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
