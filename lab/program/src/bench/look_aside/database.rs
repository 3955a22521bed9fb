//! One connection to the database behind the cache.
//!
//! The items are the rows of one table, `flowstone (name primary key, value)`. A table of that name with
//! other columns belongs to another program and is refused; nothing is ever dropped. A database that takes
//! longer than [`PATIENCE`] for an answer counts as gone.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use sqlx::any::AnyArguments;
use sqlx::{AnyConnection, Arguments, AssertSqlSafe, Connection, Error as SqlError};
use thiserror::Error;
use tokio::time::timeout;

use super::backend::{Backend, reason};
use super::sql::{Statements, TABLE};

/// Longest wait for an answer.
const PATIENCE: Duration = Duration::from_secs(60);
/// Longest time to connect.
const CONNECT_PATIENCE: Duration = Duration::from_secs(10);

#[derive(Debug, Error)]
pub(super) enum DatabaseError {
    /// An error that another command line would avoid, in one line.
    #[error("{0}")]
    Usage(String),
    /// The connection is still open and usable.
    #[error("the database {database} refused: {reason}")]
    Refused { database: String, reason: String },
    #[error("the database {database} went away: {reason}")]
    Gone { database: String, reason: String },
}

#[derive(Debug)]
pub(super) struct Database {
    backend: Arc<Backend>,
    statements: Statements,
    put_one: Arc<str>,
    connection: AnyConnection,
}

impl Database {
    /// Connects. With `create`, makes a SQLite file that does not exist.
    pub(super) async fn connect(
        backend: &Arc<Backend>,
        create: bool,
    ) -> Result<Self, DatabaseError> {
        let open = async {
            let options = backend.options(create)?;
            let statements = Statements::of(backend.kind);
            let mut connection = AnyConnection::connect_with(&options).await?;
            if let Some(prepare) = statements.prepare {
                sqlx::raw_sql(prepare).execute(&mut connection).await?;
            }
            if let Some(pages) = statements.pages
                && sqlx::query_scalar::<_, i64>(pages)
                    .fetch_one(&mut connection)
                    .await?
                    == 0
                && let Some(prepare) = statements.prepare_new
            {
                sqlx::raw_sql(prepare).execute(&mut connection).await?;
            }
            Ok(Self {
                backend: Arc::clone(backend),
                put_one: statements.put(1).into(),
                statements,
                connection,
            })
        };
        match timeout(CONNECT_PATIENCE, open).await {
            Ok(opened) => opened.map_err(|error| backend.unusable(&reason(&error))),
            Err(_) => Err(backend.unusable(&format!("no answer for {CONNECT_PATIENCE:?}"))),
        }
    }

    /// Checks that the table exists and belongs to this program. With `create`, makes a missing table.
    pub(super) async fn prepare_table(&mut self, create: bool) -> Result<(), DatabaseError> {
        let query = sqlx::query_scalar(self.statements.columns).fetch_all(&mut self.connection);
        let found: Vec<String> = self.backend.opened(query).await?;
        let database = &self.backend;
        if found.is_empty() {
            if !create {
                return Err(DatabaseError::Usage(format!(
                    "the database {database} has no table {TABLE}: add --load to make and fill it"
                )));
            }
            let query = sqlx::query(self.statements.create).execute(&mut self.connection);
            self.backend.opened(query).await?;
            return Ok(());
        }
        if found != self.statements.expected {
            let (found, expected) = (found.join(", "), self.statements.expected.join(", "));
            return Err(DatabaseError::Usage(format!(
                "the table {TABLE} of {database} has the columns ({found}), not ({expected}): name a \
                 database where that name is free"
            )));
        }
        Ok(())
    }

    /// Returns the value of `name`, or `None` if there is no such row.
    pub(super) async fn get(&mut self, name: &[u8]) -> Result<Option<Vec<u8>>, DatabaseError> {
        let query = sqlx::query_scalar(self.statements.get)
            .bind(name)
            .fetch_optional(&mut self.connection);
        self.backend.answer(query).await
    }

    /// Writes `value`, and replaces an old one.
    pub(super) async fn put(&mut self, name: &[u8], value: &[u8]) -> Result<(), DatabaseError> {
        let query = sqlx::query(AssertSqlSafe(Arc::clone(&self.put_one)))
            .bind(name)
            .bind(value)
            .execute(&mut self.connection);
        self.backend.answer(query).await.map(drop)
    }

    /// Removes the row of `name`, if it exists.
    pub(super) async fn delete(&mut self, name: &[u8]) -> Result<(), DatabaseError> {
        let query = sqlx::query(self.statements.delete)
            .bind(name)
            .execute(&mut self.connection);
        self.backend.answer(query).await.map(drop)
    }

    /// Writes all `batches` in one transaction, each in one statement.
    pub(super) async fn put_all(&mut self, batches: Vec<Rows>) -> Result<(), DatabaseError> {
        let statements = self.statements;
        let write = async {
            let mut transaction = self.connection.begin().await?;
            for rows in batches {
                let statement = statements.put(rows.len());
                let mut arguments = AnyArguments::default();
                for (name, value) in rows {
                    arguments.add(name).map_err(SqlError::Encode)?;
                    arguments.add(value).map_err(SqlError::Encode)?;
                }
                sqlx::query_with(AssertSqlSafe(statement), arguments)
                    .execute(&mut *transaction)
                    .await?;
            }
            transaction.commit().await
        };
        self.backend.answer(write).await
    }

    /// Closes the connection in order, so that SQLite leaves one file and servers log no broken connection.
    pub(super) async fn close(self) -> Result<(), DatabaseError> {
        self.backend.answer(self.connection.close()).await
    }

    /// Returns the error that `missing` of `asked` keys do not exist.
    pub(super) fn unfilled(&self, missing: usize, asked: usize) -> DatabaseError {
        DatabaseError::Usage(format!(
            "the database {} lacks {missing} of {asked} keys of this workload that were looked up: add \
             --load to fill it",
            self.backend
        ))
    }
}

/// Names and values that one statement writes, each name once.
pub(super) type Rows = Vec<(Vec<u8>, Vec<u8>)>;

impl Backend {
    /// Waits for an answer. The error says whether the database refused or went away.
    async fn answer<T>(
        &self,
        query: impl Future<Output = Result<T, SqlError>>,
    ) -> Result<T, DatabaseError> {
        let reason = match timeout(PATIENCE, query).await {
            Ok(Ok(answer)) => return Ok(answer),
            Ok(Err(error @ SqlError::Database(_))) => {
                let (database, reason) = (self.to_string(), reason(&error));
                return Err(DatabaseError::Refused { database, reason });
            }
            Ok(Err(error)) => reason(&error),
            Err(_) => format!("no answer for {PATIENCE:?}"),
        };
        let database = self.to_string();
        Err(DatabaseError::Gone { database, reason })
    }

    fn unusable(&self, reason: &str) -> DatabaseError {
        DatabaseError::Usage(format!("cannot use the database {self}: {reason}"))
    }

    /// Like [`Backend::answer`], before anything is measured: the user has to fix a refusal.
    async fn opened<T>(
        &self,
        query: impl Future<Output = Result<T, SqlError>>,
    ) -> Result<T, DatabaseError> {
        self.answer(query).await.map_err(|error| match error {
            DatabaseError::Refused { reason, .. } => self.unusable(&reason),
            other => other,
        })
    }
}
