from __future__ import annotations

from callsheet.api import keys
from callsheet.http.server import ServerOptions
from tests import stores
from tests.http.live import serving

ROUTERS = [keys.router]


async def test_a_key_is_made_listed_and_revoked() -> None:
    async with serving(stores.fresh_url("sqlite"), routers=ROUTERS) as live:
        body = {"name": "Anna", "requester_id": "acme", "scopes": ["admin"], "teams": ["red"], "ttl_s": 60}
        response = await live.client.post("/v1/keys", json=body)
        assert response.status_code == 201, response.text
        assert response.headers["cache-control"] == "no-store"
        text, key_id = response.json()["key"], response.json()["key_id"]
        used = {"Authorization": f"Bearer {text}"}
        listing = (await live.client.get("/v1/keys", headers=used)).json()["keys"]
        assert [(key["key_id"], key["teams"], key["requester_id"]) for key in listing] == [(key_id, ["red"], "acme")]
        assert text not in str(listing)
        assert (await live.client.delete(f"/v1/keys/{key_id}")).status_code == 204
        assert (await live.client.get("/v1/keys", headers=used)).status_code == 401
        assert (await live.client.delete("/v1/keys/nobody")).json()["code"] == "not_found"


async def test_only_an_administrator_sees_keys() -> None:
    async with serving(stores.fresh_url("sqlite"), routers=ROUTERS) as live:
        async with await live.key("acme") as tenant:
            assert (await tenant.get("/v1/keys")).status_code == 403
            assert (await tenant.post("/v1/keys", json={"name": "x"})).status_code == 403
            assert (await tenant.delete("/v1/keys/abc")).status_code == 403
        assert (await live.bare().get("/v1/keys")).status_code == 401


async def test_a_wrong_key_is_told_and_not_made() -> None:
    async with serving(stores.fresh_url("sqlite"), routers=ROUTERS) as live:
        for body in (
            {},
            {"name": ""},
            {"name": "x", "scopes": ["all"]},
            {"name": "x", "ttl_s": 0},
            {"name": "x", "a": 1},
        ):
            assert (await live.client.post("/v1/keys", json=body)).json()["code"] == "validation_failed", body
        assert (await live.client.get("/v1/keys")).json() == {"keys": []}


async def test_without_auth_there_are_no_keys() -> None:
    assert ServerOptions().auth
    async with serving(stores.fresh_url("sqlite"), routers=ROUTERS, auth=False) as live:
        assert (await live.client.get("/v1/keys")).json()["code"] == "auth_off"
