"""ROUTERS lists the routers of this package; a server is composed of these and of the contracts' routers."""

from __future__ import annotations

from . import (
    audit,
    batch,
    dead_letters,
    jobs,
    keys,
    objects,
    operations,
    overview,
    quotas,
    schedules,
    tasks,
    uploads,
    webhook_deliveries,
    webhook_endpoints,
    workers,
)

ROUTERS = (
    workers.router,
    batch.router,
    jobs.router,
    tasks.router,
    schedules.router,
    overview.router,
    dead_letters.router,
    operations.router,
    webhook_deliveries.router,
    webhook_endpoints.router,
    objects.router,
    uploads.router,
    keys.router,
    quotas.router,
    audit.router,
)
