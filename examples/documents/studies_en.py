"""The English studies."""

from examples.documents.studies import Study

STUDIES = (
    Study(
        "bees-on-city-roofs.pdf",
        "Bees on City Roofs: Forage and Honey in a Dense Quarter",
        "Ilse Marrow and Tobin Achterberg",
        "Port Ellery Institute for Urban Nature, June 2023",
        "Roof hives have become popular, yet it is unclear whether bees find enough to eat between stone "
        "and glass. We asked how far they fly, and whether more hives on one roof mean less honey in each.",
        "Twenty-four hives stood on eight roofs from April to September. Scales under each hive reported "
        "its weight every hour; pollen was sampled once a week and compared with the plants of the street "
        "trees register.",
        "Lime trees and bramble along the railway gave most of the pollen. Roofs with two hives gathered "
        "more honey per hive than roofs with six, but the difference vanished within four hundred metres "
        "of the canal, where the banks are left unmown. A strip of unmown bank seems to feed about three "
        "hives.",
        "Honey per hive and summer, by number of hives on a roof",
        (
            "Hives on the roof|Near the canal|Elsewhere",
            "2|21.4 kg|19.8 kg",
            "4|20.9 kg|14.1 kg",
            "6|20.2 kg|9.7 kg",
        ),
    ),
    Study(
        "library-opening-hours.html",
        "What Happens When a Library Stays Open Until Ten",
        "Odile Fenwick",
        "Bulletin of the Harrow Vale Libraries, February 2024",
        "Do evening hours bring new readers, or only move the old ones to another time of day?",
        "Three of nine branches stayed open until ten o'clock on weekdays for one year. Door counters and "
        "loans were compared with the six other branches and with the year before. Readers were asked at "
        "the door in May.",
        "Visits rose by a sixth, and about half of the evening readers had not held a card before. Most "
        "came from work, stayed for less than forty minutes, and borrowed what they had reserved. Students "
        "stayed longest. The cost per visit after seven was a little below that of the hours before ten in "
        "the morning.",
        "Visits per weekday, mean of the three branches",
        (
            "Hours|Before|During the trial",
            "9 to 13|212|205",
            "13 to 18|391|388",
            "18 to 22|0|126",
        ),
    ),
    Study(
        "sleep-of-night-nurses.pdf",
        "The Sleep of Night Nurses: Two Rosters Compared",
        "Maren Ostby, Callum Reyes and Priya Lindqvist",
        "Notes on Shift Work 14, October 2022",
        "A hospital changed from seven nights in a row to blocks of three. Did its nurses sleep longer?",
        "Fifty-one nurses wore wrist recorders for four weeks under each roster and kept a short diary. "
        "Sleep was counted from noon to noon, naps included. Nobody was paid to take part.",
        "Under the new roster the nurses slept forty-one minutes longer per day, nearly all of it on the "
        "days after the last night. They napped less and drank less coffee after midnight. The gain was "
        "largest for those who travel more than half an hour to work; for nurses with small children we "
        "found none.",
        "Sleep per day in hours",
        (
            "Group|Seven nights|Three nights",
            "All|6.1|6.8",
            "Long way to work|5.7|6.9",
            "Small children|5.9|5.9",
        ),
    ),
    Study(
        "flaky-tram-delays.pdf",
        "Why the Number Nine Tram Is Late",
        "Jory Pellam",
        "Transport Desk Papers, March 2024",
        "Line 9 keeps its timetable on fewer than two days of three. Passengers blame the bridge, drivers the doors.",
        "All 18,204 runs of one winter were followed stop by stop with the times that the trams report "
        "themselves. For each delay we looked for the first stop at which it had grown beyond one minute.",
        "The bridge opens for ships on one run of fifty and explains little. Half of all lost time arises "
        "at two stops where schools end, because boarding through one door takes three times as long. "
        "Opening all doors at these two stops would bring nine runs of ten back into the timetable.",
        "Where the first minute is lost",
        (
            "Place|Runs|Share",
            "Two school stops|3,310|51 %",
            "Crossings|1,947|30 %",
            "Bridge|389|6 %",
            "Other|844|13 %",
        ),
    ),
    Study(
        "rain-in-old-cisterns.md",
        "Rain in Old Cisterns",
        "Helewise Okafor and Bram Tolland",
        "Hill Town Water Circle, August 2021",
        "Beneath many houses of the upper town lies a cistern that nobody uses. How much rain could they still hold?",
        "We asked at every door, climbed into 63 cisterns with a lamp and a measuring rod, and filled 11 "
        "of them from the mains to see whether they keep water overnight.",
        "Together the 63 hold 1,420 cubic metres, a week of the town's need in August. Eight of the eleven "
        "kept their water; the others leak at the same course of stones, where roots have come in. "
        "Repairing one costs less than a plastic tank of a tenth of its size.",
        "Cisterns by volume",
        (
            "Volume|Number|Tight of those tried",
            "below 10 m³|22|3 of 4",
            "10 to 30 m³|29|3 of 4",
            "above 30 m³|12|2 of 3",
        ),
    ),
    Study(
        "reading-aloud-in-wards.txt",
        "Reading Aloud in Long-Stay Wards",
        "Anselm Pryce",
        "Letters from the Saltmarsh Clinic, May 2020",
        "Volunteers have read to patients on Thursdays for years. The ward asked whether anybody sleeps better for it.",
        "On alternate weeks the reading moved to Mondays. Nurses who did not know the plan noted at six in "
        "the morning who had slept through. There were 34 patients and 26 weeks.",
        "After an evening of reading, seven patients more than usual slept through the night. It made no "
        "difference what was read, but it mattered who read: familiar voices worked better than new ones. "
        "The patients asked us to add that they do not listen in order to fall asleep.",
        "Patients who slept through, of 34",
        (
            "Evening|Mean|Lowest",
            "Reading|21|17",
            "No reading|14|10",
        ),
    ),
    Study(
        "hedgehogs-and-garden-gates.html",
        "Hedgehogs and Garden Gates",
        "Wilhelmina Strand and Idris Kell",
        "Suburban Mammals Group, November 2022",
        "A gap the size of a hand in each fence is said to be enough for hedgehogs. Is it used?",
        "In two neighbouring streets of 118 gardens, half of the fences received a gap of thirteen "
        "centimetres. Ink pads and cameras stood at forty gaps and at forty places along closed fences "
        "from May to October.",
        "Hedgehogs used 33 of the 40 gaps within three weeks, and cats used all of them on the first "
        "night. A single animal visited up to fourteen gardens a night, against five where fences were "
        "closed. Slug damage, which the gardeners estimated themselves, was thought to be smaller on both "
        "sides of the street.",
        "Gardens visited by one hedgehog in a night",
        (
            "Street|Median|Most",
            "With gaps|9|14",
            "Closed|3|5",
        ),
    ),
    Study(
        "ferry-timetable-saved.pdf",
        "Island Ferry: How Passengers Learn of a Cancelled Crossing",
        "Sunniva Dale",
        "Harbour Office Working Notes, January 2024",
        "Storms cancel one crossing in thirty. Who knows before leaving home?",
        "We interviewed 402 passengers who stood at the closed pier on nine stormy mornings.",
        "Two of three had looked at the timetable on a printed sheet, which cannot know about the wind. "
        "Those with text messages came only if they had other business in the village.",
        "How passengers had asked",
        (
            "Source|Passengers",
            "Printed sheet|268",
            "Web page|91",
            "Text message|43",
        ),
    ),
    Study(
        "reading-room-survey-cut.pdf",
        "Light, Noise and Length of Stay in a Reading Room",
        "Corwin Abney and Lotte Vasser",
        "Papers of the Reading Room Society, September 2023",
        "Readers choose their seats with care. Do they stay longer where it is quiet, or where it is bright?",
        "For six weeks, 180 seats were observed each half hour, with a meter for light and another for noise.",
        "Light decides where people sit down, noise decides when they leave. A seat at the window is taken "
        "first and left first; the longest stays are at the dim tables behind the atlases.",
        "Median stay in minutes",
        (
            "Seat|Quiet|Loud",
            "Bright|84|52",
            "Dim|131|60",
        ),
    ),
    Study(
        "board-minutes-locked.pdf",
        "Minutes of the Study Board",
        "Secretary to the Board",
        "Port Ellery, December 2023",
        "The board discussed which of the year's studies should be repeated.",
        "Each member ranked the studies; the ranks were added and the list was read out.",
        "The bee study will be repeated with more roofs. The minutes are kept under a password until the spring.",
        "Ranks",
        (
            "Study|Sum of ranks",
            "Bees|11",
            "Trams|17",
            "Cisterns|23",
        ),
    ),
    Study(
        "bread-and-flour-age.pdf",
        "Does Older Flour Make Better Bread?",
        "Tamsin Groat and Emeric Vale",
        "Bakers' Evening School, April 2021",
        "Bakers of the old school let flour rest for weeks before they use it. We wanted to taste the difference.",
        "One harvest was milled every Monday for eight weeks. On one day, all eight flours were baked by "
        "the same hands in the same oven, and sixty guests ranked the loaves without knowing their age.",
        "Loaves from flour of three to five weeks rose highest and were liked best. Fresh flour gave a "
        "sticky dough that needed less water than we had given it, so that part of its disadvantage may be "
        "our own fault.",
        "Height of the loaf and mean rank (1 is best)",
        (
            "Age of flour|Height|Rank",
            "0 weeks|9.1 cm|6.4",
            "3 weeks|11.8 cm|2.2",
            "5 weeks|11.6 cm|2.5",
            "7 weeks|10.9 cm|4.0",
        ),
    ),
    Study(
        "night-sky-over-allotments.md",
        "The Night Sky over the Allotments",
        "Rosalind Quay",
        "Starwatchers of the Lower Meadow, December 2022",
        "The council replaced the street lamps along the meadow. Can we see more stars?",
        "On 31 clear nights before and 28 after the change, we counted the stars within the square of "
        "Pegasus at the same hour, with the same five pairs of eyes.",
        "Before, we saw a median of four stars; afterwards, nine. The new lamps shine downwards and are "
        "dimmed at eleven. When the football ground has a match, the count falls back to three.",
        "Stars counted in the square of Pegasus",
        (
            "Lamps|Median|Best night",
            "Old|4|6",
            "New|9|13",
            "New, match day|3|4",
        ),
    ),
    Study(
        "walking-to-school.txt",
        "Walking to School in Groups",
        "Birgit Aldous and Femi Harcourt",
        "School Travel Letters, July 2023",
        "Parents drive children to school because other parents drive. Can a timetable for walkers break the circle?",
        "At two schools, five walking routes with fixed stops and times were run by volunteers for one "
        "term. Cars at the gate were counted on every school day.",
        "The number of cars fell by a third and stayed down after the volunteers had gone home for the "
        "summer and older pupils had taken over. Rain reduced the walkers by a tenth only. The children "
        "reported that the best part was the dog at stop four.",
        "Cars at the gate in the morning",
        (
            "School|Before|Last week of term",
            "Upper Street|96|61",
            "Mill Lane|74|52",
        ),
    ),
    Study(
        "tea-breaks-and-errors.html",
        "Tea Breaks and Typing Errors in an Archive",
        "Lysander Whitcombe",
        "Archive Practice Review, March 2022",
        "Volunteers copy old parish registers by hand. When do they make their mistakes?",
        "A second group copied the same 900 pages again; where both versions differed, a third person "
        "decided. Each page carries the time at which it was finished.",
        "Errors double in the second hour without a break and fall back after ten minutes of rest. The "
        "kind of drink made no difference. Names of villages are copied worse than names of people, unless "
        "the copyist comes from there.",
        "Errors per hundred entries",
        (
            "Time since the last break|Errors",
            "first half hour|1.1",
            "second half hour|1.4",
            "second hour|2.7",
        ),
    ),
    Study(
        "owls-in-church-towers.pdf",
        "Barn Owls in Church Towers After Repair",
        "Gwendolyn Thrale",
        "Tower and Field, November 2021",
        "When towers are repaired, their openings are closed against pigeons. Do the owls come back to a box?",
        "Nest boxes were built into 37 towers behind a hole too narrow for pigeons and visited each June "
        "for five years.",
        "By the fifth year owls had bred in 22 towers, more than before the repairs. Boxes on the side of "
        "the churchyard were taken before boxes above the road. Bells do not disturb them; a new "
        "floodlight did, and was switched off by the parish after we had shown them the figures.",
        "Towers with breeding owls, of 37",
        (
            "Year|Towers|Young",
            "1|4|11",
            "3|15|49",
            "5|22|80",
        ),
    ),
    Study(
        "second-hand-bicycles.md",
        "How Long Does a Second-Hand Bicycle Last?",
        "Mirek Solander and Una Pryde",
        "Workshop Papers 6, February 2023",
        "Our workshop sells repaired bicycles with a promise of one year. Is that brave or timid?",
        "We wrote to all 512 buyers of three years and asked whether they still ride the bicycle, and what broke.",
        "Of 377 who answered, 301 still ride. Bottom brackets and rear wheels account for most repairs; "
        "frames never failed. A promise of two years would have cost us four more repairs in a hundred, so "
        "we now give it.",
        "First repair after the sale",
        (
            "Part|Bicycles",
            "Rear wheel|41",
            "Bottom bracket|38",
            "Brakes|22",
            "Lights|19",
        ),
    ),
)
