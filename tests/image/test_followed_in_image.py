"""`dbdp follow` between two containers of the image: a data owner owns the copy, from PostgreSQL 16 on."""

from collections.abc import Callable

import psycopg
import pytest
from containers import Server
from psycopg import conninfo

from dbdp.deployment.doctor import examine
from dbdp.deployment.following import followed_tables
from dbdp.deployment.following.followed_tables import Order
from dbdp.deployment.following.hosted_table import FollowError

ROWS = """
create table people (id int primary key, age int, ill bool, twice int generated always as (2 * age) stored);
insert into people select i, i % 90, i % 90 > 45 from generate_series(1, 600) as i
"""
REGISTER = """
select dbdp.register_dataset('people', 'public.people', label => 'ill', positive => 'true',
features => '{"age": [0, 100]}', capacity => 2000, epsilon => 4, delta => 1e-5)
"""
ATTACK = """
create table seen (role name, is_superuser bool, tried text);
create function attack() returns trigger language plpgsql as $$
declare tried text := 'nothing';
begin
  begin
    reset role;
    tried := current_user;
  exception when others then tried := 'refused';
  end;
  insert into public.seen select current_user, rolsuper, tried from pg_roles where rolname = current_user;
  return new;
end $$;
create trigger attack before insert on people for each row execute function attack();
alter table people enable always trigger attack
"""


@pytest.fixture(scope="module")
def servers(create: Callable[..., Server]) -> tuple[Server, Server]:
    """A hosted server and a dbdp server."""
    hosted, ours = (create(command=["postgres", "-c", "wal_level=logical"]).start() for _ in range(2))
    with hosted.connect() as provider, ours.connect() as administrator:
        provider.execute("create role app login createrole createdb replication password 'of-app'")
        provider.execute("create database app owner app template template0")
        administrator.execute("create role olga login password 'of-olga' in role dbdp_data_owner")
        administrator.execute("grant create on schema public to olga")
    return hosted, ours


def address(server: Server, **more: str) -> str:
    """The URL of a server in the containers' network, which this machine reaches too."""
    server.container.reload()
    (network,) = server.container.attrs["NetworkSettings"]["Networks"].values()
    known = {"user": server.user, "password": server.password, "dbname": server.database}
    return conninfo.make_conninfo(host=network["IPAddress"], port="5432", **(known | more))


def test_a_data_owner_owns_and_registers_a_copy(servers):
    """Its trigger runs as the owner, restricted. On PostgreSQL 15 that is refused. Generated columns arrive on 18."""
    source = address(servers[0], user="app", password="of-app", dbname="app")
    ours = address(servers[1])
    with psycopg.connect(source, autocommit=True) as hosted, psycopg.connect(ours, autocommit=True) as server:
        hosted.execute(ROWS)
        major = server.info.server_version // 10000
        columns = ["age", "ill", "twice"] if major >= 18 else ["age", "ill"]
        order = Order(source, ours, "people", columns, owner="olga")
        if major < 16:
            with pytest.raises(FollowError, match="--owner olga is not safe on PostgreSQL 15"):
                followed_tables.follow(order, lambda *_: None)
            return
        followed_tables.follow(order, lambda *_: None)
        if major >= 18:
            assert server.execute("select count(*) from people where twice = 2 * age").fetchone() == (600,)
        with psycopg.connect(address(servers[1], user="olga", password="of-olga"), autocommit=True) as olga:
            olga.execute(REGISTER)
            olga.execute(ATTACK)
            hosted.execute("insert into people (id, age, ill) values (9999, 1, true)")
            while not (seen := olga.execute("select * from seen").fetchall()):
                pass
            assert seen == [("olga", False, "refused")]
            assert not [each for each in examine(ours) if each.check == "subscriptions"]
            olga.execute("select from dbdp.dp_logreg('people', epsilon => 1, delta => 1e-6)")
        followed_tables.stop(order)


def test_a_data_owner_may_follow_without_a_superuser(servers):
    """With pg_create_subscription; without it the refusal says how."""
    source = address(servers[0], user="app", password="of-app", dbname="app")
    order = Order(source, address(servers[1], user="olga", password="of-olga"), "visits")
    with psycopg.connect(source, autocommit=True) as hosted:
        hosted.execute("create table visits (id int primary key, age int)")
    with psycopg.connect(address(servers[1]), autocommit=True) as server:
        with pytest.raises(FollowError, match="may not subscribe on the dbdp server") as error:
            followed_tables.follow(order, lambda *_: None)
        if server.info.server_version < 160000:
            return
        remedy = str(error.value).partition("dbdp server: ")[2].partition("; or ")[0]
        assert remedy.startswith("grant create on database postgres to olga")
        server.execute(remedy.encode())
        done = followed_tables.follow(order, lambda *_: None)
        assert followed_tables.follow(order, lambda *_: None).subscription == done.subscription
        assert followed_tables.status(order).state == "following"
        followed_tables.resync(order, lambda *_: None)
        followed_tables.stop(order)
