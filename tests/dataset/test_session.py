"""What the tables of one session share, and how much of it a session remembers. No request is made here."""

from __future__ import annotations

import gc
import weakref

from lance_io import Session
from lance_io.reads.version.session import LOCATIONS_MAX

OPTIONS = {"aws_access_key_id": "a", "aws_secret_access_key": "b", "aws_region": "us-east-1"}


def test_tables_of_a_bucket_share_their_store() -> None:
    session = Session()
    one, two = (session.locate(f"s3://bucket/{name}", OPTIONS) for name in ("one", "two"))
    assert (one.path, two.path) == ("one", "two")
    assert one.store is two.store
    others = [
        session.locate("s3://other/one", OPTIONS),
        session.locate("s3://bucket/one", {**OPTIONS, "aws_secret_access_key": "c"}),
        session.locate("s3://bucket/one", {**OPTIONS, "requests_max": "3"}),
        session.locate("s3+ddb://bucket/one?ddbTableName=t", OPTIONS),  # its store decides who commits, too
        session.locate("s3+ddb://bucket/one?ddbTableName=u", OPTIONS),
        Session().locate("s3://bucket/one", OPTIONS),
    ]
    stores = [one.store, *(other.store for other in others)]
    assert len({id(store) for store in stores}) == len(stores)
    handlers = {id(session.handler(other)) for other in (one, *others[3:5])}
    assert len(handlers) == 3


def test_a_session_forgets_the_places_used_longest_ago() -> None:
    session = Session()
    first, kept, held = (session.locate(f"s3://{name}/t", OPTIONS) for name in ("first", "kept", "held"))
    forgotten, remembered, alive = (weakref.ref(place.store) for place in (first, kept, held))
    number = 0
    del first, kept
    for number in range(LOCATIONS_MAX - 1):
        session.locate("s3://kept/t", OPTIONS)
        session.locate(f"s3://bucket-{number}/t", OPTIONS)
    gc.collect()
    assert forgotten() is None
    assert remembered() is session.locate("s3://kept/t", OPTIONS).store
    assert alive() is held.store is session.locate("s3://held/other", OPTIONS).store  # a dataset would hold it so
