"""Which database errors are an outage: nobody's fault, retried, charged to no item."""

import asyncpg

OUTAGE: tuple[type[BaseException], ...] = (
    OSError,
    TimeoutError,
    asyncpg.InterfaceError,
    asyncpg.PostgresConnectionError,
    asyncpg.OperatorInterventionError,
    asyncpg.InsufficientResourcesError,
    asyncpg.TransactionRollbackError,
    asyncpg.ReadOnlySQLTransactionError,
    asyncpg.LockNotAvailableError,
    asyncpg.InvalidAuthorizationSpecificationError,
    asyncpg.InvalidCachedStatementError,
    asyncpg.InternalClientError,
)

# Of these a handler's own transaction dies without its statements being to blame.
AWAY: tuple[type[BaseException], ...] = (
    asyncpg.PostgresConnectionError,
    asyncpg.AdminShutdownError,
    asyncpg.CrashShutdownError,
    asyncpg.CannotConnectNowError,
    asyncpg.ReadOnlySQLTransactionError,
)

# A value that no column can hold, however often it is written.
UNSTORABLE: tuple[type[BaseException], ...] = (
    asyncpg.DataError,
    asyncpg.ProgramLimitExceededError,
    asyncpg.StatementTooComplexError,
    asyncpg.IntegrityConstraintViolationError,
)
