"""An app with a task that runs in a process: the child imports it by module name."""

from __future__ import annotations

from callsheet import Callsheet, Context
from callsheet.objects import ObjectNotOwned

app = Callsheet()
app.catalog_url = "off"


@app.task(executor="process")
def tried(ctx: Context) -> list[str]:
    result = app.sync(ctx.objects.get("uploads/acme/1/a")).decode()
    refusals = []
    for objects in (ctx.objects, app.sync(app.objects())):
        try:
            app.sync(objects.get("uploads/other/1/a"))
        except ObjectNotOwned as error:
            refusals.append(error.code)
    return [result, *refusals, ctx.objects.open_reader("uploads/acme/1/a").read().decode()]
